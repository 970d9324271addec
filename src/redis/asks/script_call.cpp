/* Copyright (C) the limit_sliding authors */

#include "redis/asks/script_call.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>

#include "core/policy/calendar.hpp"
#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/protocol/remote_state.hpp"

namespace limit_sliding {

namespace {

/* EVALSHA, a script, the number of keys; the keys and the head of each claim. */
constexpr auto kArgs = 3 + 5 * kClaimsPerCall;

/* The most offsets of local time in a head, and the most bytes of a head. */
constexpr auto kOffsets = 4;
constexpr auto kHeadBytes = 45 + 7 + 26 + 20 + kOffsets * 16;

/* Added to the calendar of a zone in local time. */
constexpr auto kLocal = 8;

/* The ms before and after now for which the script gets offsets of local time: more than clocks
 * differ, and more than the time from a grant to its refund. */
constexpr int64_t kAroundMs = int64_t{30} * 24 * 60 * 60 * 1000;

/* The largest total of a node, and sum of totals.  Lua has no larger whole numbers. */
constexpr int64_t kTotalMax = int64_t{1} << 53;

bool is_total(int64_t number) { return number <= kTotalMax && number >= -kTotalMax; }

/* Returns the algorithm's field of a head. */
uint64_t extra_of(const Policy &policy) {
    if (policy.algorithm == Algorithm::kFixed) {
        return index_of(policy.calendar) + (policy.offsets != nullptr ? kLocal : 0);
    }

    return policy.algorithm == Algorithm::kCounter ? policy.precision : policy.burst;
}

/* Writes the head of a claim, as scripts.hpp describes it. */
class Head {
public:
    Head(u_char *text, const Ask &ask, const AskPart &part, uint64_t deadline_ms)
        : text_(text), end_(text) {
        const Claim &claim = part.claim;
        const Policy &policy = *claim.policy;
        add(index_of(policy.algorithm), 1);
        add(index_of(part.leased != 0 ? Purpose::kLease : claim.purpose), 1);
        add(ask.parts.size(), 1);
        add(ask.asked_units, 4);
        add(uint64_t{policy.strict}, 1);
        add(uint64_t{records(claim)}, 1);
        add(index_of(part.beside), 1);
        add(policy.window_ms, 5);
        add(claim.limit, 7);
        add(extra_of(policy), 4);
        add(claim.cost, 7);
        add(part.window.code(), 5);
        add(deadline_ms, 7);

        if (part.zone->redis->settles) { add(part.pace, 7); }

        if (part.leased != 0) {
            add(part.leased, 4);
        } else if (claim.purpose == Purpose::kGiveBack) {
            add(part.taken.now_ms, 7);
            add(part.taken.values[0], 7);
            add(part.taken.values[1], 7);
            add(part.taken.window, 5);
        }

        if (part.beside == Beside::kTotals) {
            add(part.totals.life, 6);
            add(static_cast<uint64_t>(part.totals.acked), 7);
            add(static_cast<uint64_t>(part.totals.total), 7);
        }

        if (policy.algorithm == Algorithm::kFixed && policy.offsets != nullptr) {
            add_offsets(*policy.offsets);
        }
    }

    std::string_view text() const { return view(text_, end_ - text_); }

private:
    /* Adds 1 to 8 bytes of a number.  The bytes behind them are written as well. */
    void add(uint64_t number, size_t bytes) {
        const uint64_t big_endian = htobe64(number << (64 - 8 * bytes));
        ngx_memcpy(end_, &big_endian, sizeof(big_endian));
        end_ += bytes;
    }

    void add_offsets(const UtcOffsets &offsets) {
        const int64_t now_ms = int64_t{ngx_time()} * 1000;
        const UtcOffsets near = offsets.between(now_ms - kAroundMs, now_ms + kAroundMs);
        for (size_t i = 0; i < std::min<size_t>(near.n, kOffsets); i++) {
            add(static_cast<uint64_t>(near.offsets[i].since_ms), 8);
            add(static_cast<uint64_t>(near.offsets[i].offset_ms), 8);
        }
    }

    u_char *text_;
    u_char *end_;
};

/* Returns the time of the server until which the node waits for the reply to a call. */
uint64_t deadline_ms(const Node &node, const Call &call) {
    const auto now_ms = static_cast<int64_t>(call.sent_us / 1000) + node.clock_ahead_ms;
    return static_cast<uint64_t>(now_ms) + node.settings->timeout;
}

/* The arguments of a call of the script. */
class Command {
public:
    void begin() { nargs_ = 0; }

    /* Adds an argument, which is not copied. */
    void add(const Arg &arg) { args_[nargs_++] = arg; }

    void add_keys(AskList &asks, bool is_cluster);
    void add_heads(AskList &asks, uint64_t deadline_ms);

    Span<const Arg> args() const { return {args_, nargs_}; }

private:
    size_t nargs_ = 0;
    Arg args_[kArgs] = {};
    u_char count_[NGX_INT_T_LEN] = {};
    u_char heads_[kClaimsPerCall * kHeadBytes + sizeof(uint64_t)] = {};
};

/* Adds the keys that the script touches: of each claim the state, the limit, and the debt and the
 * mark, if the script reads them; in a cluster the state alone, see read_values.lua. */
void Command::add_keys(AskList &asks, bool is_cluster) {
    const size_t count = nargs_++;
    for (const Ask &ask : asks) {
        for (const AskPart &part : ask.parts) {
            const std::string_view key = view(part.key);
            add(key);
            if (is_cluster) { continue; }

            add({base_of(part), kLimitSuffix});
            if (part.zone->redis->settles) { add({key, kDebtSuffix}); }
            if (part.beside == Beside::kMark) { add({key, kMarkSuffix}); }
            if (part.beside == Beside::kTotals) { add({key, kTotalsSuffix}); }
        }
    }

    u_char *const end = count_ + sizeof(count_);
    const u_char *begin = print_digits(end, nargs_ - count - 1);
    args_[count] = view(begin, end - begin);
}

/* Most claims of a call have the head of the claim before them.  The script reads the heads of an
 * ask with several claims twice, so these are all there. */
void Command::add_heads(AskList &asks, uint64_t deadline_ms) {
    u_char *p = heads_;
    std::string_view last;
    size_t end = nargs_;
    for (const Ask &ask : asks) {
        for (const AskPart &part : ask.parts) {
            const std::string_view head = Head(p, ask, part, deadline_ms).text();
            if (ask.parts.size() == 1 && head == last) {
                add(std::string_view{});
                continue;
            }

            add(head);
            end = nargs_;
            last = head;
            p += head.size();
        }
    }

    nargs_ = end;
}

/* Logs what is wrong with a key of the zone, once a minute for all workers. */
void log_bad_key(const RemoteZone &zone, const char *wrong) {
    /* the zone of probes has no place */
    if (zone.log_after == nullptr || !is_due_once(*zone.log_after)) { return; }

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, wrong, &zone.name);
}

/* RemoteState::values of a key without a limit, or with a foreign state. */
constexpr int64_t kNoValues[kCounterValues] = {};

/* Reads the terms of the next key: its override and its debt. */
bool read_terms(ScriptReply &from, const AskPart &part, PartAnswer *answer) {
    const Reply &reply = from.reply;
    if (!answer->read(reply.numbers, reply.n, &from.next)) { return false; }

    const uint64_t limit
        = answer->terms == Terms::kBlocked ? 0 : limit_under(answer->own, part.claim.limit);
    if (limit > part.claim.policy->limit_max(true)) { return false; }

    answer->state = {static_cast<uint64_t>(reply.numbers[0]), limit, kNoValues};
    answer->policy
        = with_window(*part.zone->policy, answer->own.is_set() ? answer->own.window : part.window);
    if (answer->owed != 0) {
        if (answer->terms != Terms::kLimited
            || !is_remote_debt(answer->policy, answer->owed, answer->owed_from)) {
            return false;
        }

        answer->state.debt
            = {static_cast<uint64_t>(answer->owed), static_cast<uint64_t>(answer->owed_from),
               limit_under(answer->own, part.pace)};
    }
    return true;
}

/* Reads the history of the next key, which leaves room for what was granted. */
bool read_history(ScriptReply &from, const AskPart &part, int64_t granted, PartAnswer *answer) {
    const Reply &reply = from.reply;
    answer->lost = 0;
    if (is_settled(part.claim)) {
        const int64_t lost = from.take();
        answer->lost = static_cast<uint64_t>(lost);
        return lost >= 0 && answer->lost <= part.claim.cost;
    }

    if (answer->is_foreign) { return granted == 0; }

    if (answer->terms != Terms::kLimited) {
        return answer->terms == Terms::kUnlimited || granted == 0;
    }

    RemoteState &state = answer->state;
    if (answer->policy.algorithm == Algorithm::kCounter) {
        if (from.next == reply.n || reply.is_number(from.next)
            || !read_counter(answer->policy, state.limit, state.now_ms, reply.string(from.next++),
                             answer->counter)) {
            return false;
        }

        state.values = answer->counter;
    } else {
        state.values = reply.numbers + from.next;
        for (unsigned n = remote_values(answer->policy, 0); n > 0; n--) {
            if (from.take() == INT64_MIN) { return false; }
        }
    }
    if (!are_remote_values(answer->policy, state.limit, state.now_ms, state.values)) {
        return false;
    }

    /* a request whose units had no room would be delayed for as long as a debt may last */
    const Claim &claim = part.claim;
    const Wide requests = claim.purpose == Purpose::kLook ? 1 : static_cast<uint64_t>(granted);
    return granted == 0 || state.has_room(answer->policy, requests * claim.cost);
}

/* Remembers the limits of keys, which hold while Redis is away, and makes the parts claims of the
 * windows in force. */
void set_known(Ask &ask, const Answer &answer) {
    for (size_t i = 0; i < ask.parts.size(); i++) {
        AskPart &part = ask.parts[i];
        learn_override(*part.zone, part.claim, answer.parts[i].own, answer.parts[i].is_malformed);
        part.claim.set_policy(answer.parts[i].policy);
    }
}

/* Returns true if a key of the ask has a foreign state; counts and logs it. */
bool is_foreign(const Ask &ask, const Answer &answer) {
    for (size_t i = 0; i < ask.parts.size(); i++) {
        if (!answer.parts[i].is_foreign) { continue; }

        add(&ask.redis->client.calls->foreign, 1);
        log_bad_key(*ask.parts[i].zone,
                    "state of a key of zone \"%V\" in redis is of another version of this module, "
                    "on_error applies");
        return true;
    }

    return false;
}

void note_clock(Node &node, const ErrandCall &call, int64_t server_ms, uint64_t now_us) {
    const int64_t back_ms = node.note_clock(server_ms, call.sent_us, now_us);
    const Redis &redis = *node.redis;
    if (back_ms == 0 || !is_due_once(redis.shared->clock_told)) { return; }

    add(&redis.client.calls->clock_steps, 1);
    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "limit_sliding redis \"%V\": its clock was set back by %L ms, "
                  "states that are more than a window later count as none",
                  &redis.settings.name, back_ms);
}

} // namespace

bool is_due_once(ngx_atomic_t &after_ms) {
    const ngx_atomic_uint_t after = after_ms;
    return (after == 0 || ms_until(after) <= 0)
           && ngx_atomic_cmp_set(&after_ms, after, ngx_current_msec + 60 * 1000);
}

void learn_override(const RemoteZone &zone, const Claim &claim, const Override &own,
                    bool is_malformed) {
    if (zone.last_overrides != nullptr) { zone.last_overrides->set(claim.key_hash(), own); }
    if (is_malformed) {
        log_bad_key(zone,
                    "invalid limit of a key of zone \"%V\" in redis, the zone's rate applies");
    }
}

bool records(const Claim &claim) { return claim.records && !is_settled(claim); }

bool call_script(Node &node, ErrandCall &call) {
    static Command command;
    const Redis &redis = *node.redis;
    call.sent_us = clock_us();
    command.begin();
    command.add(call.whole ? "EVAL" : "EVALSHA");
    command.add(view(call.whole ? redis.script : redis.script_sha1));
    command.add_keys(asks_of(call), redis.client.nodes.is_cluster());
    command.add_heads(asks_of(call), deadline_ms(node, call));
    return node.command(call, command.args());
}

void note_error(Node &node, Reply &reply) {
    node.log->write(0, "%s", reply_text(&reply));
    /* the end of a broken connection is counted */
    if (!node.is_broken()) { node_failed(node); }
}

void script_answered(Node &node, ErrandCall &call, Reply &reply) {
    if (reply.type == REDIS_REPLY_ERROR) {
        note_error(node, reply);
        return;
    }

    /* a time that is compared with this one later may be so old */
    const ngx_msec_t sent = call.sent - std::min(call.sent, node.settings->clock_age_ms);
    ScriptReply script_reply{reply};
    static Answer answer; /* read() sets all fields, and to clear them takes 160 instructions */
    while (!call.errands.empty()) {
        const bool is_last = &call.errands.front() == &call.errands.back();
        if (!script_reply.read(asks_of(call).front(), is_last, &answer)) {
            node.blame(reply);
            return;
        }

        auto &ask = static_cast<Ask &>(take_errand(call));
        if (is_foreign(ask, answer)) {
            ask.kind->failed(ask, Failure::kRefused);
        } else {
            set_known(ask, answer);
            kind_of(ask).take_answer(ask, answer, sent);
        }
    }

    const uint64_t now_us = clock_us();
    note_clock(node, call, reply.numbers[0], now_us);
    node.redis->client.calls->latencies.add(now_us - call.sent_us);
    node_answered(node);
}

int64_t ScriptReply::take() {
    const bool is_number = next < reply.n && reply.is_number(next);
    return is_number ? reply.numbers[next++] : INT64_MIN;
}

bool ScriptReply::read(const Ask &ask, bool is_last, Answer *answer) {
    if (reply.type != REDIS_REPLY_ARRAY || reply.n == 0 || reply.numbers[0] < 0
        || reply.numbers[0] > kRemoteTimeMax) {
        return false;
    }

    answer->granted = take();
    if (answer->granted < 0 || answer->granted > static_cast<int64_t>(ask.asked_units)) {
        return false;
    }

    PartAnswer *part_answer = answer->parts;
    for (const AskPart &part : ask.parts) {
        if (!read_terms(*this, part, part_answer)
            || !read_history(*this, part, answer->granted, part_answer)) {
            return false;
        }

        if (part.beside == Beside::kTotals) {
            part_answer->others = take();
            part_answer->total = take();
            if (!is_total(part_answer->others) || !is_total(part_answer->total)) { return false; }
        }

        part_answer->forgotten = part.beside != Beside::kNothing ? take() : 0;
        if (part_answer->forgotten < 0) { return false; }

        part_answer->rejected
            = records(part.claim) ? ask.asked_units - static_cast<uint64_t>(answer->granted) : 0;
        part_answer++;
    }
    return !is_last || next == reply.n;
}

Verdict describe_part(const AskPart &part, const PartAnswer &answer, uint32_t before) {
    const Claim &claim = part.claim;
    if (is_settled(claim) || answer.terms == Terms::kUnlimited) {
        return unlimited_verdict(answer.policy, answer.state.limit);
    }

    if (answer.terms == Terms::kBlocked) { return blocked_verdict(claim.cost); }

    auto describe = [&](uint64_t rejected) {
        return answer.state.describe(answer.policy, claim.cost, before, false,
                                     claim.purpose != Purpose::kConsume, rejected);
    };

    const Verdict verdict = describe(0);
    return verdict.retry_after_ms != 0 && answer.rejected != 0
               ? describe(answer.rejected * claim.cost)
               : verdict;
}

} // namespace limit_sliding
