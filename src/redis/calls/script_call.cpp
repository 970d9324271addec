/* Copyright (C) the limit_sliding authors */

#include "redis/calls/script_call.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <cstdlib>

#include "core/policy/calendar.hpp"
#include "ngx/monotonic_clock.hpp"
#include "ngx/strings.hpp"
#include "redis/protocol/ask_hash.hpp"
#include "redis/protocol/remote_state.hpp"
#include "redis/protocol/scripts.hpp"

namespace limit_sliding {

namespace {

constexpr auto kClaimsPerCall = 2 * kClaimsMax;

/* EVALSHA, a script, the numbers of keys and of kinds; the keys, the kind and its number of each
 * claim; offsets of local time, two numbers each; the two numbers of each ask. */
constexpr auto kOffsets = 4;
constexpr auto kArgs = 4 + kClaimsPerCall * (4 + 12 + 1 + 2 * kOffsets + 1) + kErrandsPerCall * 2;

constexpr auto kNumberBytes = NGX_INT64_LEN;

/* Added to the number of a purpose if the node has leased units of the key left. */
constexpr auto kHeldHere = 8;

/* Added to the number of a purpose if debts are not paid at the limit. */
constexpr auto kPaced = 32;

/* Added to the number of an algorithm if the requested window is not the zone's. */
constexpr auto kOtherWindow = 8;

/* Added to the precision of a strict counter. */
constexpr auto kStrict = 64;

/* Added to the calendar of a zone in local time. */
constexpr auto kLocal = 8;

/* The ms before and after now for which the script gets offsets of local time: more than clocks
 * differ, and more than the time from a grant to its refund. */
constexpr int64_t kAroundMs = int64_t{30} * 24 * 60 * 60 * 1000;

/* Returns the algorithm's argument of a zone. */
uint64_t extra_of(const Policy &policy) {
    if (policy.algorithm == Algorithm::kFixed) {
        return index_of(policy.calendar) + (policy.offsets != nullptr ? kLocal : 0);
    }

    return policy.algorithm == Algorithm::kCounter
               ? policy.precision + (policy.strict ? kStrict : 0)
               : policy.burst;
}

/* Returns true if the script needs the pace of debts. */
bool is_paced(const AskPart &part) {
    return part.zone->redis->settles && part.pace != part.claim.limit;
}

/* Returns the number of the script's operation for a kind. */
uint64_t purpose_of(const AskPart &part) {
    Purpose purpose = part.leased ? Purpose::kLease : part.claim.purpose;
    return index_of(purpose) + (part.held ? kHeldHere : 0) + (records(part.claim) ? kRecords : 0)
           + (is_paced(part) ? kPaced : 0);
}

/* The arguments of a call of the script. */
class Command {
public:
    void begin() {
        nargs_ = 0;
        nkinds_ = 0;
        last_ = text_;
    }

    /* Adds an argument, which is not copied. */
    void add(const Arg &arg) { args_[nargs_++] = arg; }

    void add(uint64_t number) { add(Arg(text_of(number))); }

    void add_offsets(const UtcOffsets &offsets) {
        const int64_t now_ms = int64_t{ngx_time()} * 1000;
        const UtcOffsets near = offsets.between(now_ms - kAroundMs, now_ms + kAroundMs);
        const size_t n = std::min<size_t>(near.n, kOffsets);

        add(uint64_t{2 * n});
        for (size_t i = 0; i < n; i++) {
            add_signed(near.offsets[i].since_ms);
            add_signed(near.offsets[i].offset_ms);
        }
    }

    void add_keys(AskList &asks, bool is_cluster);

    /* Returns the number of the part's kind, from 1 on.  Adds a new kind. */
    size_t kind(const AskPart &part) {
        for (size_t i = 0; i < nkinds_; i++) {
            if (kinds_[i] == &part || is_same(kinds_[i], part)) { return i + 1; }
        }

        kinds_[nkinds_++] = &part;
        return nkinds_;
    }

    void add_kinds();

    Span<const Arg> args() const { return {args_, nargs_}; }

private:
    static bool is_same(const AskPart *kind, const AskPart &part) {
        const Claim &a = kind->claim;
        const Claim &b = part.claim;

        return a.policy == b.policy && kind->window == part.window && a.limit == b.limit
               && kind->pace == part.pace && a.cost == b.cost && a.purpose == b.purpose
               && kind->held == part.held && a.records == b.records
               && a.purpose != Purpose::kGiveBack && part.leased == 0 && kind->leased == 0;
    }

    std::string_view text_of(uint64_t number) {
        u_char *p = last_;
        last_ = ngx_sprintf(p, "%uL", number);
        return view(p, last_ - p);
    }

    void add_signed(int64_t number) {
        u_char *p = last_;
        last_ = ngx_sprintf(p, "%L", number);
        add(view(p, last_ - p));
    }

    size_t nargs_ = 0;
    Arg args_[kArgs] = {};

    size_t nkinds_ = 0;
    const AskPart *kinds_[kClaimsPerCall] = {};
    u_char *last_ = nullptr;
    u_char text_[kArgs * kNumberBytes] = {};
};

/* Adds the keys that the script touches: of each claim the state, the limit, and the debt and the
 * mark, if the script reads them; in a cluster the state alone, see read_values.lua. */
void Command::add_keys(AskList &asks, bool is_cluster) {
    const size_t count = nargs_++;
    for (const Ask &ask : asks) {
        for (const AskPart &part : ask.parts) {
            (void)kind(part);
            const std::string_view key = view(part.key);
            add(key);
            if (is_cluster) { continue; }

            add({key, kLimitSuffix});
            if (part.zone->redis->settles) { add({key, kDebtSuffix}); }
            if (part.held) { add({key, kMarkSuffix}); }
        }
    }

    args_[count] = text_of(nargs_ - count - 1);
}

/* Adds the kinds: the values that several claims may share. */
void Command::add_kinds() {
    add(nkinds_);
    for (size_t i = 0; i < nkinds_; i++) {
        const AskPart &part = *kinds_[i];
        const Claim &claim = part.claim;
        const Policy &policy = *claim.policy;

        const bool is_other = part.window.is_given();
        add(index_of(policy.algorithm) + (is_other ? kOtherWindow : 0));
        add(policy.window_ms);
        add(claim.limit);
        add(extra_of(policy));
        add(claim.cost);

        add(purpose_of(part));
        if (is_paced(part)) { add(part.pace); }

        if (part.leased) {
            add(part.leased);
        } else if (claim.purpose == Purpose::kGiveBack) {
            add(part.taken.now_ms);
            add(part.taken.values[0]);
            add(part.taken.values[1]);
            add(part.taken.window);
        }

        if (is_other) { add(uint64_t{part.window.code()}); }

        if (policy.algorithm == Algorithm::kFixed && policy.offsets != nullptr) {
            add_offsets(*policy.offsets);
        }
    }
}

/* Returns true if the script knows the ask without its numbers. */
bool is_plain(Command &command, const Ask &ask) {
    return ask.asked_units == 1 && ask.parts.size() == 1 && command.kind(ask.parts[0]) == 1;
}

void add_asks(Command &command, AskList &asks) {
    /* most calls have nothing but plain asks at their end */
    const Ask *last = nullptr;
    for (const Ask &ask : asks) {
        if (!is_plain(command, ask)) { last = &ask; }
    }

    if (last == nullptr) { return; }

    for (const Ask &ask : asks) {
        command.add(ask.asked_units);
        command.add(ask.parts.size());
        for (const AskPart &part : ask.parts) {
            command.add(command.kind(part));
        }

        if (&ask == last) { break; }
    }
}

/* Logs that a key has an invalid limit, once a minute for all workers. */
void log_bad_limit(const RemoteZone &zone) {
    if (zone.log_after == nullptr) {
        /* the zone is that of probes */
        return;
    }

    ngx_atomic_uint_t after = *zone.log_after;
    if ((after && static_cast<ngx_msec_int_t>(after - ngx_current_msec) > 0)
        || !ngx_atomic_cmp_set(zone.log_after, after, ngx_current_msec + 60 * 1000)) {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "invalid limit of a key of zone \"%V\" in redis, the zone's rate applies",
                  &zone.name);
}

bool has_window(int64_t limit) { return limit > kScriptOwn && (limit & kScriptWindow) != 0; }

bool has_debt(int64_t limit) { return (std::abs(std::max(limit, -INT64_MAX)) & kScriptDebt) != 0; }

/* Return the first number of the debt, for a part with a debt, and the first value. */
const int64_t *debt_of(const int64_t *numbers) {
    return numbers + (has_window(numbers[0]) ? 2 : 1);
}
const int64_t *values_of(const int64_t *numbers) {
    return debt_of(numbers) + (has_debt(numbers[0]) ? 2 : 0);
}

/* Returns the window of the key's override; none: the window of the zone. */
Window window_of(const int64_t *numbers) {
    return has_window(numbers[0]) && numbers[1] >= 0 && numbers[1] <= kWindowMaxMs
               ? Window::from_code(static_cast<uint32_t>(numbers[1]))
               : Window{};
}

/* Returns the policy of the window in force. */
Policy policy_of(const AskPart &part, const Override &own) {
    return with_window(*part.zone->policy, own.is_set() ? own.window : part.window);
}

/* Returns the key's override.  Sets *limit to the limit in force. */
Override override_of(const int64_t *numbers, int64_t *limit) {
    *limit = numbers[0];
    if (*limit == 0) { return {kUnlimited, {}}; }

    if (*limit == kScriptOwn) {
        *limit = 0;
        return {kBlocked, {}};
    }

    const bool is_own = *limit > kScriptOwn;
    const int64_t more = (is_own ? kScriptOwn : 0) + (has_window(*limit) ? kScriptWindow : 0)
                         + (has_debt(*limit) ? kScriptDebt : 0);
    *limit = std::abs(std::max(*limit, -INT64_MAX)) - more;
    return is_own ? Override{static_cast<uint64_t>(*limit), window_of(numbers)} : Override{};
}

/* Returns true if the numbers are a limit and the values of an algorithm, which mean nothing
 * without a limit; or, for a settlement, the units that were not settled.  A blocked key is
 * granted nothing, because no limit could count its use. */
bool is_state(const AskPart &part, uint64_t now_ms, int64_t granted, const int64_t *numbers) {
    const Claim &claim = part.claim;
    const int64_t *values = values_of(numbers);
    int64_t limit;
    Override own = override_of(numbers, &limit);
    if (static_cast<uint64_t>(limit) > claim.policy->limit_max(true)
        || (has_window(numbers[0]) && !own.window.is_given())
        || (limit == 0 && !own.is_unlimited() && !own.is_blocked())
        || (has_debt(numbers[0])
            && !is_remote_debt(policy_of(part, own), debt_of(numbers)[0], debt_of(numbers)[1]))) {
        return false;
    }

    if (is_settled(claim)) {
        return values[0] >= 0 && static_cast<uint64_t>(values[0]) <= claim.cost;
    }

    if (own.is_blocked() && granted != 0) { return false; }

    return limit == 0
           || are_remote_values(policy_of(part, own), static_cast<uint64_t>(limit), now_ms, values);
}

/* Returns true if the time does not overflow when an offset of local time or a window of the
 * calendar is added. */
bool is_time(int64_t ms) { return ms >= 0 && ms <= INT64_MAX / 2; }

/* Returns the length of a part of the reply that begins with these numbers. */
size_t numbers_of(const AskPart &part, const int64_t *numbers) {
    const int64_t *values = values_of(numbers);
    size_t before = values - numbers;
    if (is_settled(part.claim)) { return before + 1; }

    return before + remote_values(*part.claim.policy, values[0]) + (part.held ? 1 : 0);
}

/* Remembers the limits of keys, which hold while Redis is away, and makes the parts claims of the
 * windows in force. */
void set_known(Ask &ask, const Answer &answer) {
    for (size_t i = 0; i < ask.parts.size(); i++) {
        AskPart &part = ask.parts[i];
        if (part.zone->told) { part.zone->told->set(part.claim.key_hash(), answer.parts[i].own); }

        part.claim.set_policy(answer.parts[i].policy);
    }
}

} // namespace

bool records(const Claim &claim) { return claim.records && !is_settled(claim); }

/* Each ask takes a part of the room for the reply.  In a cluster, where asks hardly ever share a
 * slot, a call has one ask, so that a redirection is about one slot. */
bool join_script(ErrandCall &call, Errand &errand) {
    auto &ask = static_cast<Ask &>(errand);
    const size_t most = ask.redis->client.nodes.is_cluster() ? 1 : kErrandsPerCall;
    size_t numbers = 1;
    for (const AskPart &part : ask.parts) {
        numbers += 4 + remote_values_max(*part.claim.policy);
    }

    if (call.nerrands == most || call.nclaims + ask.parts.size() > kClaimsPerCall
        || 1 + call.numbers + numbers + ask.parts.size() > kReplyNumbers) {
        return false;
    }

    call.nclaims += ask.parts.size();
    call.numbers += numbers;
    take_waiters(ask);
    return true;
}

bool call_script(Node &node, ErrandCall &call) {
    static Command command;
    const Redis &redis = *node.redis;
    command.begin();
    command.add(call.whole ? "EVAL" : "EVALSHA");
    command.add(view(call.whole ? redis.script : redis.script_sha1));
    command.add_keys(asks_of(call), redis.client.nodes.is_cluster());

    command.add_kinds();
    add_asks(command, asks_of(call));
    return put_call(node, call, command.args());
}

void script_answered(Node &node, ErrandCall &call, Reply &reply) {
    if (reply.type == REDIS_REPLY_ERROR) {
        node.log->write(0, "%s", reply_text(&reply));
        /* the end of a broken connection is counted */
        if (!node.is_broken()) { node_failed(node); }
        return;
    }

    if (reply.type != REDIS_REPLY_ARRAY || !is_script_reply(call, reply)) {
        node.blame(reply);
        return;
    }

    node_answered(node);
    node.redis->client.calls->latencies.add(clock_us() - call.sent_us);
    /* a time that is compared with this one later may be so old */
    const ngx_msec_t sent = call.sent - std::min(call.sent, node.settings->clock_age_ms);
    ScriptReply script_reply(reply);
    Answer answer;
    while (!call.errands.empty()) {
        auto &ask = static_cast<Ask &>(take_errand(call));
        script_reply.read(ask, &answer);
        set_known(ask, answer);
        kind_of(ask).told(ask, answer, sent);
    }
}

bool is_script_reply(ErrandCall &call, const Reply &reply) {
    const int64_t *next = reply.numbers;
    const int64_t *end = next + reply.n;
    if (end - next < 1 || !is_time(*next)) { return false; }

    const auto now_ms = static_cast<uint64_t>(*next++);

    for (const Ask &ask : asks_of(call)) {
        if (next == end || *next < 0 || *next > static_cast<int64_t>(ask.asked_units)) {
            return false;
        }

        const int64_t granted = *next++;
        for (const AskPart &part : ask.parts) {
            /* a part has a limit and at least one value, which tells the length */
            if (end - next < 2 || end - next <= values_of(next) - next) { return false; }

            auto n = static_cast<ptrdiff_t>(numbers_of(part, next));
            if (end - next < n || !is_state(part, now_ms, granted, next)) { return false; }

            next += n;
            if (part.held && next[-1] < 0) { return false; }
        }
    }
    return next == end;
}

void ScriptReply::read(const Ask &ask, Answer *answer) {
    answer->granted = *next_++;
    PartAnswer *told = answer->parts;
    for (const AskPart &part : ask.parts) {
        const int64_t *end = next_ + numbers_of(part, next_);
        int64_t limit;
        told->own = override_of(next_, &limit);
        told->policy = policy_of(part, told->own);
        if (*next_ < 0) { log_bad_limit(*part.zone); }

        DebtPayment debt;
        if (has_debt(*next_)) {
            const int64_t *owed = debt_of(next_);
            debt = {static_cast<uint64_t>(owed[0]), static_cast<uint64_t>(owed[1]),
                    told->own.is_limited() ? told->own.limit : part.pace};
        }

        next_ = values_of(next_);
        told->state
            = {now_ms_, told->is_unlimited() ? part.claim.limit : static_cast<uint64_t>(limit),
               next_, debt};

        told->lost = is_settled(part.claim) ? static_cast<uint64_t>(*next_) : 0;
        told->forgotten = part.held ? end[-1] : 0;
        told->rejected
            = records(part.claim) ? ask.asked_units - static_cast<uint64_t>(answer->granted) : 0;
        told++;
        next_ = end;
    }
}

Verdict describe_part(const AskPart &part, const PartAnswer &answer, uint32_t before,
                      bool admitted) {
    const Claim &claim = part.claim;
    if (answer.own.is_blocked() && !is_settled(claim)) { return blocked_verdict(claim.cost); }

    if (!answer.is_unlimited() && !is_settled(claim)) {
        auto describe = [&](uint64_t rejected) {
            return answer.state.describe(answer.policy, claim.cost, before, admitted,
                                         claim.purpose != Purpose::kConsume, rejected);
        };

        const Verdict verdict = describe(0);
        const bool rejects = !admitted && verdict.retry_after_ms != 0;
        return rejects && answer.rejected != 0 ? describe(answer.rejected * claim.cost) : verdict;
    }

    Verdict verdict = {};
    verdict.limit = answer.state.limit;
    verdict.remaining = verdict.limit;
    return verdict;
}

} // namespace limit_sliding
