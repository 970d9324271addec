/* Copyright (C) the limit_sliding authors */

/* Messages about shares: calls of hold_script(), and the replies. */

#include "redis/shares/share.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>

#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/asks/script_call.hpp"
#include "redis/protocol/scripts.hpp"

namespace limit_sliding {

namespace {

/* A message takes at most 1 / kAheadPart of the room in advance. */
constexpr uint64_t kAheadPart = 16;

/* The ms after which Redis forgets units that no message repeats. */
constexpr ngx_msec_t kUnitsLifeMs = 60 * 60 * 1000;

/* Puts all waiters with the first waiter's limit into the message.  Returns the sum of their
 * costs. */
uint64_t take_equal_waiters(Share &share) {
    uint64_t sum = 0;
    share.units = share.asked_units = 0;
    if (!share.waiters.empty()) {
        share.parts[0].claim.limit = share.waiters.front().claims[0].limit;
    }

    for (Waiter &waiter : share.waiters) {
        const Claim &claim = waiter.claims[0];
        if (claim.limit != share.parts[0].claim.limit) {
            share.units++;
            continue;
        }

        WaiterList::remove(waiter);
        share.asked.push_back(waiter);
        waiter.asked = true;
        share.asked_units++;
        sum += claim.cost;
    }

    return sum;
}

bool join(ErrandCall &call, Errand &errand) {
    if (call.nerrands == kErrandsPerCall) { return false; }

    Share &share = share_of(errand);
    const uint64_t kept = share.spare() - std::min(share.excess, share.spare());
    const uint64_t needed = take_equal_waiters(share);

    /* a key that is asked for often also gets units for its next requests */
    const bool is_hot = needed != 0 && ngx_current_msec - share.sent < kKeptMs;
    const uint64_t more = is_hot ? std::min(needed, share.room() / kAheadPart) : 0;

    share.epoch = share.holder->epoch;
    share.base = share.used;
    share.wanted = std::max(needed + more, kept);
    share.granted = std::min(share.granted, share.base);
    share.excess = 0;
    share.sent = ngx_current_msec;
    ShareList::remove(share);
    shares_of(*share.holder).push_back(share);
    return true;
}

/* EVALSHA, the script, the number of keys, the heartbeat, the grace, epoch and life; and for each
 * key two names and the numbers. */
constexpr size_t kArgs = 7 + 3 * kErrandsPerCall;

bool put(Node &node, ErrandCall &call) {
    static Arg args[kArgs];
    static u_char text[(3 * kErrandsPerCall + 3) * (NGX_INT64_LEN + 1)];
    const HeartbeatName name(share_of(call.errands.front()).holder->id);
    u_char *last = text;
    args[0] = call.whole ? "EVAL" : "EVALSHA";
    args[1] = call.whole ? hold_script() : view(node.redis->hold_sha1);
    args[3] = name.key(*node.redis);
    args[4] = {view(node.redis->settings.key_prefix), kGraceName};
    size_t n = 5;
    for (Errand &errand : call.errands) {
        const Share &share = share_of(errand);
        const AskPart &part = share.parts[0];
        args[n++] = view(part.key);
        if (share.has_limit()) { args[n++] = {base_of(part), kLimitSuffix}; }
    }

    args[2] = append_digits(&last, n - 3);
    args[n++] = append_digits(&last, share_of(call.errands.front()).epoch);
    args[n++] = append_digits(&last, kUnitsLifeMs);

    std::string_view before;
    size_t end = n;
    for (Errand &errand : call.errands) {
        const Share &share = share_of(errand);
        u_char *p = last;
        last = append_number(p, share.base);
        if (share.has_limit()) {
            *last++ = ' ';
            last = append_number(last, share.wanted);
            *last++ = ' ';
            last = append_number(last, share.parts[0].claim.limit);
        }

        const std::string_view numbers = view(p, last - p);
        if (numbers == before) {
            args[n++] = std::string_view{};
            continue;
        }

        args[n++] = before = numbers;
        end = n;
    }

    return node.command(call, {args, end});
}

/* The answer about a key. */
struct HoldAnswer : KeyTerms {
    int64_t granted;
    int64_t total; /* units of all holders */
};

/* Reads the answer to a share.  Returns false if there is none. */
bool read(ScriptReply &from, const Share &share, HoldAnswer *answer) {
    const bool has_terms = answer->read(from.reply.numbers, from.reply.n, &from.next);
    const Override &own = answer->own;
    const bool is_limit = !own.window.is_given() && limit_under(own, 0) <= kNarrowMax;
    answer->granted = from.take();
    answer->total = from.take();
    return has_terms && is_limit && !answer->is_foreign && answer->owed == 0 && answer->granted >= 0
           && answer->granted <= static_cast<int64_t>(share.wanted)
           && answer->total >= static_cast<int64_t>(share.base) + answer->granted
           && answer->total <= static_cast<int64_t>(kRemoteMax);
}

void take_answer(Share &share, const HoldAnswer &answer) {
    UnitHolder &holder = *share.holder;
    const AskPart &part = share.parts[0];
    if (share.has_limit()) {
        learn_override(*part.zone, part.claim, answer.own, answer.is_malformed);
        share.own = answer.own;
    }

    if (!is_ready(holder) || share.epoch != holder.epoch || !is_valid(holder)) {
        /* Redis may not count the units any more */
        set_unknown(share);
        return_waiters(share);
        renew_epoch(holder);
        return;
    }

    share.is_known = true;
    share.has_failed = false;
    share.granted = share.base + static_cast<uint64_t>(answer.granted);
    share.others = static_cast<uint64_t>(answer.total) - share.granted;
    if (is_in_grace(holder)) {
        return_waiters(share);
        fail_unasked(share);
        return;
    }

    const bool is_full = answer.granted < static_cast<int64_t>(share.wanted);
    if (is_full) { share.refused_until = ngx_current_msec + kRefusedMs; }

    if (!share.has_limit()) { return; }

    /* BASE is granted under any limit, and may exceed this one */
    const uint64_t limit = share.limit_for(part.claim);
    const bool is_within = static_cast<uint64_t>(answer.total) <= limit;
    share.granted_limit = is_within ? limit : std::max(share.granted_limit, limit);
    share.own_at = share.sent;
    tell(share, share.asked, true);
    tell(share, share.waiters, is_full);
    if (is_full) { share.excess = share.spare(); }
}

void answered(Node &node, ErrandCall &call, Reply &reply) {
    if (reply.type == REDIS_REPLY_ERROR) {
        note_error(node, reply);
        return;
    }

    if (reply.type != REDIS_REPLY_ARRAY || reply.n == 0 || !reply.is_number(0)
        || reply.numbers[0] > static_cast<int64_t>(kHolderLifeMs) + 1) {
        node.blame(reply);
        return;
    }

    UnitHolder &holder = *share_of(call.errands.front()).holder;
    const int64_t grace_ms = reply.numbers[0] - 1;
    if (grace_ms < 0) {
        while (!call.errands.empty()) {
            Share &share = share_of(take_errand(call));
            set_unknown(share);
            return_waiters(share);
        }

        renew_epoch(holder);
        return;
    }

    if (grace_ms > 0) { holder.grace_until = ngx_current_msec + static_cast<ngx_msec_t>(grace_ms); }

    ScriptReply script_reply{reply};
    while (!call.errands.empty()) {
        HoldAnswer answer;
        if (!read(script_reply, share_of(call.errands.front()), &answer)) {
            node.blame(reply);
            return;
        }

        Share &share = share_of(take_errand(call));
        take_answer(share, answer);
        ask_done(share);
    }

    node.redis->client.calls->latencies.add(clock_us() - call.sent_us);
    node_answered(node);
}

void failed(Errand &errand, Failure failure) {
    Share &share = share_of(errand);
    share.has_failed = share.holder->has_failed = true;
    if (failure != Failure::kUnsent) { set_unknown(share); }

    if (failure == Failure::kLost) { share.holder->is_registered = false; }

    fail_waiters(errand, failure);
}

} // namespace

const AskKind kShare = {{join, put, answered, failed, return_waiters,
                         /* resume */
                         [](Errand &errand) { ask_done(share_of(errand)); }},
                        nullptr,
                        rest};

} // namespace limit_sliding
