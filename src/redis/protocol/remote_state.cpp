/* Copyright (C) the limit_sliding authors */

#include "redis/protocol/remote_state.hpp"

#include <algorithm>
#include <iterator>

#include "core/policy/calendar.hpp"
#include "core/policy/describe_usage.hpp"
#include "redis/protocol/counter_reply.hpp"
#include "redis/protocol/scripts.hpp"

namespace limit_sliding {

namespace {

/* The longest wait of a verdict in ms, 69 years. */
constexpr uint64_t kWaitMaxMs = uint64_t{1} << 41;

/* The time in ms before the end of a counter's part in which refusals hold no longer than the
 * wait.  It exceeds the lateness of clocks, the time of a call, and the time before the end in
 * which leases are not spent. */
constexpr uint64_t kPartTailMs = 15;

/* Returns true if a state with precision=auto can have this number of parts. */
bool is_kind(int64_t parts) {
    return std::any_of(std::begin(kCounterKinds), std::end(kCounterKinds),
                       [=](const CounterKind &kind) { return parts == int64_t{kind.parts}; });
}

/* Instead of its digest, a state has this number if the script has converted it to another number
 * of parts; the end of the state that was stored follows, in ms. */
constexpr uint64_t kConverted = 0xffff;

/* Reads numbers, the highest byte first.  Behind the end, all bytes are 0. */
class Bytes {
public:
    explicit Bytes(std::string_view text) : text_(text) {}

    size_t size() const { return text_.size(); }

    uint64_t take(size_t bytes) {
        uint64_t number = 0;
        for (; bytes > 0; bytes--) {
            number <<= 8;
            if (text_.empty()) { continue; }

            number |= static_cast<uint8_t>(text_.front());
            text_.remove_prefix(1);
        }
        return number;
    }

private:
    std::string_view text_;
};

/* How far in the future units may be after Redis's clock was set back: ms, plus windows. */
constexpr uint64_t kAheadMs = 24 * 3600 * 1000;
constexpr uint64_t kAheadWindows = 8192;

/* A request for a key in the state that the script has found. */
struct Request {
    const Policy &policy;
    const RemoteState &remote;
    uint64_t cost;     /* 0 if the request was admitted */
    uint64_t spent;    /* units granted by this call */
    uint64_t rejected; /* units recorded after them, as far as the limit has room */
    DebtPayment debt = remote.debt;
    uint64_t limit = remote.limit;
    uint64_t queued = 0; /* cost of a request that was admitted to a queue; else 0 */

    /* Adds the debt to the granted units, as the script records both.  A key that still owes has
     * recorded no rejected units. */
    void settle_debt() {
        if (spent > 0) {
            spent += debt.units;
            debt = {};
        }

        if (debt.units > 0) { rejected = 0; }
    }

    uint64_t value() const { return static_cast<uint64_t>(remote.values[0]); }

    /* Returns the ms until an event of this time expires; a negative time is now. */
    uint64_t event_wait_ms(int64_t time_ms) const {
        uint64_t then_ms = time_ms < 0 ? remote.now_ms : static_cast<uint64_t>(time_ms);
        uint64_t end_ms = then_ms + policy.window_ms;
        return end_ms > remote.now_ms ? end_ms - remote.now_ms : 1;
    }

    /* Returns true if the rejected units have filled the key, which `used` units had not. */
    bool fills(Wide used, Wide full) const { return rejected > 0 && used < full; }

    /* Returns the used requests of a key whose history is whole requests. */
    uint64_t used() const {
        uint64_t used = value() + spent;
        return fills(used, limit) ? limit : used;
    }

    void describe_state(Verdict *verdict) const {
        switch (policy.algorithm) {
        case Algorithm::kLog:
            describe_log(verdict);
            break;
        case Algorithm::kFixed:
            describe_fixed(verdict);
            break;
        case Algorithm::kTokenBucket:
        case Algorithm::kLeakyBucket:
            describe_bucket(verdict);
            break;
        default:
            describe_counter(verdict);
        }
    }

    /* Describes a key by the usage of its history and the debt.  wait_ms(left, room) returns the
     * ms until the history is `left` requests; `room` is `left` plus the debt then. */
    template <class WaitMs>
    void describe(UsageOf<Wide> usage, const WaitMs &wait_ms, Verdict *verdict) const {
        const UsageOf<Wide> history = usage;
        auto wait = [&](uint64_t room) {
            auto history_ms = [&](uint64_t left) {
                return history.used <= left * history.request ? 0 : wait_ms(left, room);
            };
            return debt.wait_ms(policy, remote.now_ms, room, history_ms);
        };
        usage.used += debt.units * usage.request;
        describe_usage(usage, cost, wait, verdict);
    }

    void describe_counter(Verdict *verdict) const {
        CounterReply parts(policy, limit, remote.now_ms, remote.values, spent, rejected);
        Wide window = policy.window_ms;

        describe(
            {limit, limit, window, parts.used(), limit * window},
            [&](uint64_t left, uint64_t) { return parts.wait_ms(left); }, verdict);
    }

    void describe_fixed(Verdict *verdict) const {
        uint64_t left_ms = remote.part_ends_ms(policy) - remote.now_ms;
        describe(
            {limit, limit, 1, used(), limit}, [&](uint64_t, uint64_t) { return left_ms; }, verdict);
    }

    void describe_log(Verdict *verdict) const {
        auto wait_ms = [&](uint64_t, uint64_t room) {
            bool is_first = room + 1 == std::min(used() + debt.units, limit);
            return event_wait_ms(remote.values[is_first ? 1 : 2]);
        };
        describe({limit, limit, 1, used(), limit}, wait_ms, verdict);
        if (rejected > 0) { verdict->excess = std::min(verdict->excess, cost * 1000); }
    }

    void describe_bucket(Verdict *verdict) const {
        uint64_t capacity = policy.capacity(limit);
        Wide window = policy.window_ms;
        Wide full = capacity * window;
        Wide used = value() * window + static_cast<uint64_t>(remote.values[1]) + spent * window;
        if (fills(used, full)) { used = full; }

        bool is_queue = policy.algorithm == Algorithm::kLeakyBucket;

        /* at most the whole bucket counts as used, but the excess has to run off, too */
        UsageOf<Wide> usage
            = {limit, capacity, window, std::min(used, full), is_queue ? window : full};
        auto wait_ms = [&](uint64_t left, uint64_t) {
            const Wide taken = used - left * window;
            return static_cast<uint64_t>(std::min((taken + limit - 1) / limit, Wide{kWaitMaxMs}));
        };
        describe(usage, wait_ms, verdict);
        if (is_queue && queued > 0) {
            Wide ahead = used - std::min(used, queued * window);
            Wide free = policy.undelayed * window;

            verdict->delay_ms = static_cast<uint64_t>(
                std::min((ahead - std::min(ahead, free)) / limit, Wide{kWaitMaxMs}));
            verdict->excess = thousandths(ahead + (queued - 1) * window, window);
        }
    }
};

} // namespace

bool KeyTerms::read(const int64_t *elements, size_t n, size_t *next) {
    *this = {};
    const bool has_terms = *next < n && elements[*next] < 0 && elements[*next] > -2 * kScriptOwn;
    if (!has_terms) { return true; }

    auto take = [&] { return *next < n ? elements[(*next)++] : -1; };
    const int64_t code = -take();
    const int64_t limit = code & ~kScriptDebt;
    is_malformed = limit == kScriptMalformed;
    is_foreign = code == kScriptForeign;
    if (limit > kScriptOwn) {
        own.limit = static_cast<uint64_t>(limit & (kScriptWindow - 1));
    } else if (limit == kScriptOwn) {
        own.limit = kLimitBlocked;
    } else if (limit == kScriptOff) {
        own.limit = kLimitOff;
    } else if (limit != 0 && !is_malformed && !is_foreign) {
        return false;
    }

    terms = terms_of(own);
    if ((code & kScriptWindow) != 0) {
        const int64_t window = take();
        if (window < 0 || window > kWindowMaxMs) { return false; }

        own.window = Window::from_code(static_cast<uint32_t>(window));
        if (!own.window.is_given() || !own.is_set()) { return false; }
    }

    if ((code & kScriptDebt) != 0) {
        owed = take();
        owed_from = take();
        return owed > 0;
    }
    return true;
}

bool read_counter(const Policy &policy, uint64_t limit, uint64_t now_ms, std::string_view state,
                  int64_t (&values)[kCounterValues]) {
    const bool is_auto = policy.precision == 0;
    uint64_t parts = counter_parts_of(policy, limit);
    if (state.empty()) {
        std::fill_n(values + 2, parts + 2, 0);
        values[0] = static_cast<int64_t>(parts);
        values[1] = static_cast<int64_t>(now_ms * parts / policy.window_ms);
        return true;
    }

    Bytes rest(state);
    values[2] = rest.take(2) == kConverted ? static_cast<int64_t>(rest.take(6)) : 0;
    uint64_t number = rest.take(4);
    const unsigned bits = is_auto ? 28 : 32;
    if (is_auto) {
        const uint64_t kind = number >> bits;
        parts = kind == 9 ? 22 : kind > 7 ? 4 * kind - 4 : kind;
    }

    if (parts == 0) { return false; }

    /* numbers of parts recur; the newest part is the nearest one to now with this number */
    const uint64_t present = now_ms * parts / policy.window_ms;
    const auto ahead = static_cast<int64_t>((number - present) << (64 - bits)) >> (64 - bits);
    values[0] = static_cast<int64_t>(parts);
    values[1] = static_cast<int64_t>(present) + ahead;
    int64_t *counts = values + 3;
    if (is_auto && parts > 7) {
        std::fill_n(counts, parts + 1, 0);
        while (rest.size() > 0) {
            const uint64_t age = rest.take(1);
            if (age > parts) { return false; }
            counts[parts - age]++;
        }
        return true;
    }

    const size_t bytes = rest.size() / (parts + 1);
    if (rest.size() != bytes * (parts + 1) || bytes == 0 || bytes > 7) { return false; }

    for (uint64_t i = 0; i <= parts; i++) {
        counts[i] = static_cast<int64_t>(rest.take(bytes));
    }
    return true;
}

bool are_remote_values(const Policy &policy, uint64_t limit, uint64_t now_ms,
                       const int64_t *values) {
    const uint64_t window = policy.window_ms;
    const uint64_t latest_ms = now_ms + kAheadWindows * window + kAheadMs;

    /* as an unsigned number, a negative one exceeds all bounds */
    auto is_within = [](int64_t value, uint64_t least, uint64_t most) {
        return static_cast<uint64_t>(value) >= least && static_cast<uint64_t>(value) <= most;
    };
    auto is_count = [=](int64_t value) { return is_within(value, 0, kSettledMax); };
    auto is_event = [=](int64_t ms) { return ms == -1 || is_within(ms, 0, latest_ms); };

    switch (policy.algorithm) {
    case Algorithm::kCounter: {
        const int64_t parts = values[0];
        const auto n = static_cast<uint64_t>(parts);
        return (policy.precision == 0 ? is_kind(parts) : parts == int64_t{policy.precision})
               && is_within(values[1], now_ms * n / window, latest_ms * n / window)
               && (values[2] == 0 || is_within(values[2], now_ms + 1, INT64_MAX))
               && std::all_of(values + 3, values + 4 + parts, is_count);
    }
    case Algorithm::kLog:
        return is_count(values[0]) && is_event(values[1]) && is_event(values[2]);
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket: {
        /* the excess is rounded to whole ms, so a bucket is over-full by less than the units that
         * run off in a ms */
        const Wide used
            = Wide{static_cast<uint64_t>(values[0])} * window + static_cast<uint64_t>(values[1]);
        return is_within(values[1], 0, window - 1)
               && used <= Wide{policy.capacity(limit)} * window + limit;
    }
    default:
        return is_count(values[0]);
    }
}

bool is_remote_debt(const Policy &policy, int64_t units, int64_t from) {
    /* the time does not overflow, even if months are long */
    return units > 0 && static_cast<uint64_t>(units) <= kSettledMax && from >= 0
           && static_cast<uint64_t>(from) <= INT64_MAX / 2 / policy.window_ms;
}

/* The history of a counter is left out: the script may have found room in fewer parts than the
 * counter has now. */
bool RemoteState::has_room(const Policy &policy, Wide units) const {
    const uint64_t capacity = policy.capacity(limit);
    uint64_t used = 0;
    if (policy.algorithm != Algorithm::kCounter) { used = static_cast<uint64_t>(values[0]); }

    if (policy.is_bucket() && values[1] != 0) { used++; }

    return debt.units + units <= capacity - std::min(used, capacity);
}

uint64_t RemoteState::part_ends_ms(const Policy &policy) const {
    if (policy.calendar != Calendar::kNone) {
        return calendar_window(policy.calendar, policy.offsets, now_ms).end_ms;
    }

    uint64_t parts = 1;
    uint64_t newest = now_ms / policy.window_ms;
    if (policy.algorithm == Algorithm::kCounter) {
        parts = static_cast<uint64_t>(values[0]);
        newest = static_cast<uint64_t>(values[1]);
    }

    return (newest + 1) * policy.window_ms / parts;
}

Taken RemoteState::taken(const Policy &policy, uint64_t before) const {
    const uint64_t window = policy.salt != 0 ? policy.window().code() : 0;
    auto value = [this](size_t i) { return static_cast<uint64_t>(values[i]); };

    switch (policy.algorithm) {
    case Algorithm::kCounter:
        return {now_ms, {value(0), value(1)}, window};
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
        /* the debt is older than the claim, and was recorded when the claim was admitted */
        return {now_ms, {value(0) + debt.units + before, value(1)}, window};
    default:
        return {now_ms, {}, window};
    }
}

Verdict RemoteState::describe(const Policy &policy, uint64_t cost, uint32_t granted, bool admitted,
                              bool look, uint64_t rejected) const {
    uint64_t spent = look ? 0 : (granted + uint64_t{admitted}) * cost;
    Request request = {policy, *this, admitted ? 0 : cost, spent, admitted ? 0 : rejected};
    if (admitted && !look) { request.queued = cost; }

    request.settle_debt();
    Verdict verdict;
    request.describe_state(&verdict);
    if (policy.algorithm == Algorithm::kCounter && admitted) {
        /* the request may have found room in fewer parts than the counter has now */
        verdict.excess = 0;
        verdict.retry_after_ms = 0;
    }

    return verdict;
}

uint64_t RemoteState::refused_ms(const Policy &policy, const Verdict &verdict) const {
    const uint64_t wait_ms = verdict.retry_after_ms;
    return wait_ms == 0 || wait_ms >= kRefusedMs
               ? wait_ms
               : std::max(wait_ms, std::min(kRefusedMs, patience_ms(policy, verdict)));
}

/* Free units of a counter are lost if no node consumes them before the part of the window ends:
 * counts of this part would weigh less from then on.  A fixed window frees all units at its end.
 * A bucket loses units for which it has no room.  A log records events as late as nodes ask. */
uint64_t RemoteState::patience_ms(const Policy &policy, const Verdict &verdict) const {
    switch (policy.algorithm) {
    case Algorithm::kCounter: {
        const uint64_t ends_ms = part_ends_ms(policy);
        return ends_ms > now_ms + kPartTailMs ? ends_ms - kPartTailMs - now_ms : 0;
    }
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket: {
        const uint64_t taken = policy.capacity(verdict.limit) - verdict.remaining;
        return static_cast<uint64_t>(Wide{taken} * policy.window_ms / verdict.limit / 2);
    }
    case Algorithm::kLog:
        return policy.window_ms / 100;
    default:
        return 0;
    }
}

uint64_t RemoteState::used_after(const Policy &policy, uint64_t units) const {
    Verdict verdict;
    Request request = {policy, *this, 0, units, 0};
    request.settle_debt();
    request.describe_state(&verdict);
    return policy.used(verdict);
}

} // namespace limit_sliding
