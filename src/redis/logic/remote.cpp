/* Copyright (C) the limit_sliding authors */

#include "redis/logic/remote.hpp"

#include <algorithm>
#include <iterator>

#include "core/calendar.hpp"
#include "core/counter_kinds.hpp"
#include "core/describe.hpp"
#include "redis/logic/counter_parts.hpp"

namespace limit_sliding {

namespace {

/* The longest wait that is told, 69 years. */
constexpr uint64_t kWaitMaxMs = uint64_t{1} << 41;

/* For so many ms before a part of a counter's window ends, refusals hold no longer
 * than they must.  This is more than clocks are late and a call takes, and than the
 * time before the end in which leases are not spent any more. */
constexpr uint64_t kPartTailMs = 15;

/* Returns true if a state of precision=auto can have so many parts. */
bool is_kind(int64_t parts) {
    return std::any_of(std::begin(kCounterKinds), std::end(kCounterKinds),
                       [=](const CounterKind &kind) { return parts == int64_t{kind.parts}; });
}

/* The values of a key that owes. */
constexpr unsigned kOwedValues = 4;

/* Returns true if its time does not overflow, though a month be longer than most. */
bool is_part(const Policy &policy, int64_t part) {
    return part >= 0 && static_cast<uint64_t>(part) <= INT64_MAX / 2 / policy.window_ms;
}

bool is_limit(int64_t value) { return value > 0 && static_cast<uint64_t>(value) <= kRemoteMax; }

bool are_owed_values(const Policy &policy, const int64_t *values) {
    if (values[0] != -1) { return false; }

    if (policy.algorithm == Algorithm::kCounter || policy.algorithm == Algorithm::kFixed) {
        return is_part(policy, values[1]) && is_limit(values[2]) && values[3] >= 0
               && static_cast<uint64_t>(values[3]) <= kRemoteMax;
    }

    return is_limit(values[1]) && values[2] >= 0 && values[3] >= 0
           && static_cast<uint64_t>(values[3]) < policy.window_ms;
}

/* One request for a key, as the script has found it. */
struct Request {
    const Policy &policy;
    const RemoteState &remote;
    uint64_t limit;
    uint64_t cost;     /* 0 if it was admitted: what was wanted is used */
    uint64_t spent;    /* of this call */
    uint64_t rejected; /* after that, of what is recorded, as the limit has room */

    uint64_t window_ms() const { return policy.window_ms; }

    uint64_t value() const { return static_cast<uint64_t>(remote.values[0]); }

    /* Returns the ms until an event of that time expires; negative: it is now. */
    uint64_t event_wait_ms(int64_t time_ms) const {
        uint64_t then_ms = time_ms < 0 ? remote.now_ms : static_cast<uint64_t>(time_ms);
        uint64_t end_ms = then_ms + window_ms();

        return end_ms > remote.now_ms ? end_ms - remote.now_ms : 1;
    }

    /* Returns true if what was rejected has filled the key, of which so much was used:
     * it did not fit. */
    bool fills(Wide used, Wide full) const { return rejected > 0 && used < full; }

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
            describe_bucket(0, verdict);
            break;
        default:
            describe_counter(verdict);
        }
    }

    void describe_counter(Verdict *verdict) const {
        Owed owed;
        bool owes = remote.owes(policy);

        if (owes) { owed = remote.owed(policy); }

        CounterParts parts(policy, remote.limit, remote.now_ms, remote.values,
                           owes ? &owed : nullptr, spent, rejected);
        Wide window = window_ms();
        UsageOf<Wide> usage = {remote.limit, limit, window, parts.used(), limit * window};

        describe_usage(
            usage, cost, [&](uint64_t room) { return parts.wait_ms(room); }, verdict);
    }

    void describe_fixed(Verdict *verdict) const {
        if (remote.owes(policy) && spent == 0
            && !fills(remote.owed(policy).used(remote.now_ms), limit)) {
            describe_owed_window(verdict);
            return;
        }

        uint64_t left_ms = remote.part_ends_ms(policy) - remote.now_ms;
        uint64_t used = remote.owes(policy)
                            ? static_cast<uint64_t>(remote.owed(policy).used(remote.now_ms))
                            : value();

        used += spent;
        if (fills(used, limit)) { used = limit; }

        describe_usage(
            {remote.limit, limit, 1, used, limit}, cost, [&](uint64_t) { return left_ms; },
            verdict);
    }

    void describe_owed_window(Verdict *verdict) const {
        Owed owed = remote.owed(policy);
        UsageOf<Wide> usage = {remote.limit, limit, 1, owed.used(remote.now_ms), limit};

        auto wait_ms = [&](uint64_t room) {
            uint64_t then_ms
                = room < owed.last ? owed.begins_ms(owed.due + 1) : owed.falls_ms(room);

            return then_ms - remote.now_ms;
        };

        describe_usage(usage, cost, wait_ms, verdict);
    }

    void describe_log(Verdict *verdict) const {
        uint64_t used = value() + spent;
        if (fills(used, limit)) { used = limit; }

        auto wait_ms = [&](uint64_t room) {
            bool is_first = room + 1 == std::min(used, limit);

            return event_wait_ms(remote.values[is_first ? 1 : 2]);
        };

        describe_usage({remote.limit, limit, 1, used, limit}, cost, wait_ms, verdict);

        if (rejected > 0) { verdict->excess = std::min(verdict->excess, cost * 1000); }
    }

    /* `queued` is the cost of a request that was admitted to a queue, else 0. */
    void describe_bucket(uint64_t queued, Verdict *verdict) const {
        bool owes = remote.owes(policy);
        uint64_t capacity = policy.capacity(remote.limit);
        Wide window = window_ms();
        Wide full = capacity * window;

        if (owes && spent == 0 && !fills(remote.owed_bucket(policy).used, full)) {
            describe_owed_bucket(verdict);
            return;
        }

        Wide before = owes ? remote.owed_bucket(policy).used
                           : value() * window + static_cast<uint64_t>(remote.values[1]);
        Wide used = before + spent * window;
        if (fills(used, full)) { used = full; }

        bool is_queue = policy.algorithm == Algorithm::kLeakyBucket;

        auto wait_ms = [&](Wide taken) {
            return static_cast<uint64_t>(std::min((taken + limit - 1) / limit, Wide{kWaitMaxMs}));
        };

        /* no more than the whole bucket is used, but an excess has to run off */
        UsageOf<Wide> usage
            = {remote.limit, capacity, window, std::min(used, full), is_queue ? window : full};
        auto wait_for = [&](uint64_t room) { return wait_ms(used - room * window); };

        describe_usage(usage, cost, wait_for, verdict);

        if (is_queue && queued > 0) {
            Wide ahead = used - std::min(used, queued * window);

            Wide free = policy.undelayed * window;

            verdict->delay_ms = static_cast<uint64_t>(
                std::min((ahead - std::min(ahead, free)) / limit, Wide{kWaitMaxMs}));
            verdict->excess = thousandths(ahead + (queued - 1) * window, window);
        }
    }

    void describe_owed_bucket(Verdict *verdict) const {
        OwedBucket owed = remote.owed_bucket(policy);
        uint64_t capacity = policy.capacity(remote.limit);
        Wide window = window_ms();
        Wide full = capacity * window;
        bool is_queue = policy.algorithm == Algorithm::kLeakyBucket;
        UsageOf<Wide> usage = {remote.limit, capacity, window, owed.used, is_queue ? window : full};

        auto wait_ms = [&](uint64_t room) {
            return std::min(owed.wait_ms(room * window, remote.limit, full), kWaitMaxMs);
        };

        describe_usage(usage, cost, wait_ms, verdict);
    }
};

} // namespace

unsigned remote_values(const Policy &policy, int64_t first) {
    if (first < 0 && policy.algorithm != Algorithm::kLog) { return kOwedValues; }

    switch (policy.algorithm) {
    case Algorithm::kCounter:
        return static_cast<unsigned>(std::clamp<int64_t>(first, 0, kPartsMax)) + 4;
    case Algorithm::kLog:
        return 3;
    case Algorithm::kFixed:
        return 1;
    default:
        return 2;
    }
}

unsigned remote_values_max(const Policy &policy) {
    unsigned most
        = remote_values(policy, policy.precision ? policy.precision : kCounterKinds[0].parts);

    return std::max(most, remote_values(policy, -1));
}

bool are_remote_values(const Policy &policy, const int64_t *values) {
    unsigned n = remote_values(policy, values[0]);
    int64_t least = policy.algorithm == Algorithm::kLog ? -1 : 0;

    if (n == kOwedValues && values[0] < 0) { return are_owed_values(policy, values); }

    if (std::any_of(values, values + n, [=](int64_t value) { return value < least; })) {
        return false;
    }

    if (policy.algorithm != Algorithm::kCounter) { return true; }

    return is_part(policy, values[1])
           && (policy.precision == 0 ? is_kind(values[0]) : values[0] == int64_t{policy.precision});
}

OwedBucket RemoteState::owed_bucket(const Policy &policy) const {
    auto value = [this](size_t i) { return static_cast<uint64_t>(values[i]); };

    return {value(1), Wide{value(2)} * policy.window_ms + value(3),
            Wide{policy.capacity(value(1))} * policy.window_ms};
}

bool RemoteState::owes(const Policy &policy) const {
    return policy.algorithm != Algorithm::kLog && values[0] < 0;
}

Owed RemoteState::owed(const Policy &policy) const {
    bool has_parts = policy.algorithm == Algorithm::kCounter && policy.precision > 0;
    auto value = [this](size_t i) { return static_cast<uint64_t>(values[i]); };

    return {policy.window_ms, has_parts ? policy.precision : uint64_t{1},
            value(1),         value(2),
            value(3),         policy.calendar,
            policy.offsets};
}

uint64_t RemoteState::part_ends_ms(const Policy &policy) const {
    if (policy.calendar != Calendar::kNone) {
        return calendar_window(policy.calendar, policy.offsets, now_ms).end_ms;
    }

    uint64_t parts = 1;
    uint64_t newest = now_ms / policy.window_ms;

    if (policy.algorithm == Algorithm::kCounter && !owes(policy)) {
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
        if (owes(policy)) {
            uint64_t parts = counter_parts_of(policy, limit);
            return {now_ms, {parts, now_ms * parts / policy.window_ms}, window};
        }
        return {now_ms, {value(0), value(1)}, window};
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
        if (owes(policy)) {
            Wide used = owed_bucket(policy).used;
            return {now_ms,
                    {static_cast<uint64_t>(used / policy.window_ms) + before,
                     static_cast<uint64_t>(used % policy.window_ms)},
                    window};
        }
        return {now_ms, {value(0) + before, value(1)}, window};
    default:
        return {now_ms, {}, window};
    }
}

Verdict RemoteState::describe(const Policy &policy, uint64_t cost, uint32_t granted, bool admitted,
                              bool look, uint64_t rejected) const {
    uint64_t spent = look ? 0 : (granted + uint64_t{admitted}) * cost;
    Request request = {policy, *this, limit, admitted ? 0 : cost, spent, admitted ? 0 : rejected};

    Verdict verdict;

    if (policy.algorithm == Algorithm::kLeakyBucket && admitted && !look) {
        request.describe_bucket(cost, &verdict);
        return verdict;
    }

    request.describe_state(&verdict);

    if (policy.algorithm == Algorithm::kCounter && admitted) {
        /* it may have found room in fewer parts than there are now */
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

/* What a counter frees is lost if nobody asks before the part of the window ends:
 * the counts of that part would weigh less from then on.  A fixed window frees all
 * at its end.  A bucket loses what it has no room for.  Events of a log are
 * recorded as late as they are asked for. */
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

    Request{policy, *this, limit, 0, units, 0}.describe_state(&verdict);

    return policy.used(verdict);
}

} // namespace limit_sliding
