/* Copyright (C) the limit_sliding authors */

#include "redis/calls/deliver_reply.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>

#include "ngx/clock.hpp"
#include "ngx/strings.hpp"
#include "redis/calls/lease_units.hpp"
#include "redis/calls/script_call.hpp"
#include "redis/calls/settlement.hpp"
#include "redis/protocol/claim_hash.hpp"
#include "redis/shared/refusals.hpp"

namespace limit_sliding {

namespace {

/* Handles an error of Redis, which is not a verdict. */
void call_refused(Node &node, AskCall &call, Reply &reply) {
    if (resend_call(node, call, reply)) { return; }

    auto error = view(reply.text, reply.len);
    if (starts_with(error, "NOSCRIPT") && !call.whole) {
        /* the one command that is known not to have run */
        call.whole = true;
        if (call_script(node, call)) {
            node.post_flush();
            return;
        }
    }

    node.log->write(0, "%s", reply_text(&reply));
    if (starts_with(error, "READONLY") || starts_with(error, "MASTERDOWN")) {
        /* the name may mean another server by now; the end of the connection is counted */
        node.set_broken("it is a replica");
    } else {
        node_failed(node);
    }

    for (Ask &ask : call.asks) {
        if (ask.notice != nullptr) { ask.notice->refused = true; }
    }

    fail_call(node, call);
}

/* Remembers until when whoever asks will be rejected, counted from when it was
 * asked, which is before it was decided.  Returns true if that time is still to
 * come. */
bool remember_refusals(const Ask &ask, const Answer &answer, ngx_msec_t sent) {
    Verdict verdicts[kClaimsMax];
    bool refused = false;
    for (size_t i = 0; i < ask.parts.size(); i++) {
        verdicts[i] = describe_part(ask.parts[i], answer.parts[i],
                                    static_cast<uint32_t>(answer.granted), false);

        const PartAnswer &part = answer.parts[i];
        uint64_t &wait_ms = verdicts[i].retry_after_ms;
        wait_ms
            = part.own.is_blocked() ? kRefusalMs : part.state.refused_ms(part.policy, verdicts[i]);
        if (wait_ms == kNever
            || static_cast<ngx_msec_int_t>(sent + wait_ms - ngx_current_msec) <= 0) {
            wait_ms = 0;
        }

        refused = refused || wait_ms;
    }

    if (!refused) { return false; }

    /* the headers of a rejection also show the limits that would admit */
    for (size_t i = 0; i < ask.parts.size(); i++) {
        add_refusal(*ask.parts[i].zone, ask.parts[i].claim, verdicts[i], sent);
    }
    return true;
}

/* Decides claims, all of which are admitted or not, by their state after `before` units. */
void decide(const Ask &ask, Span<Claim> claims, const Answer &answer, uint32_t before,
            bool admitted) {
    bool rejected = false;
    for (size_t i = 0; i < ask.parts.size(); i++) {
        Claim &claim = claims[i];
        RemoteClaim &remote = remote_of(claim);
        const PartAnswer &told = answer.parts[i];
        set_window(claim, told.own);
        if (!is_settled(claim)) {
            remote.taken = told.state.taken(*claim.policy, before * claim.cost);
        }

        remote.own = told.own;
        remote.verdict = describe_part(ask.parts[i], told, before, admitted);

        bool rejects = !admitted && remote.verdict.retry_after_ms;
        set_told(claim, rejects ? Outcome::kRejected : Outcome::kAdmitted);
        rejected = rejected || rejects;
    }

    if (!admitted && !rejected) {
        /* by a state of a time which the server's clock is yet to reach */
        remote_of(claims[0]).verdict.retry_after_ms = 1;
        claims[0].outcome = Outcome::kRejected;
    }
}

/* Decides the waiters in order of arrival.  If the answer is not to them,
 * only leases admit them. */
void tell_answer(const Ask &ask, WaiterList &waiters, const Answer &answer, bool to_them) {
    for (Waiter &waiter : waiters) {
        bool granted = to_them && static_cast<int64_t>(waiter.turn) < answer.granted;
        if (!granted && admit_by_leases(waiter)) { continue; }

        auto before = static_cast<uint32_t>(granted ? waiter.turn : answer.granted);
        decide(ask, waiter.claims, answer, before, granted);
        tell_waiter(waiter, granted ? Told::kAdmitted : Told::kRejected);
    }
}

/* Makes the parts claims of the windows in force. */
void set_windows(Ask &ask, const Answer &answer) {
    for (size_t i = 0; i < ask.parts.size(); i++) {
        ask.parts[i].claim.set_policy(answer.parts[i].policy);
    }
}

/* Makes them claims of the zones' windows again. */
void unset_windows(Ask &ask) {
    for (AskPart &part : ask.parts) {
        part.claim.set_policy(*part.zone->policy);
    }
}

void handle_answer(Ask &ask, const Answer &answer, ngx_msec_t sent) {
    /* these hold while Redis is away */
    for (size_t i = 0; i < ask.parts.size(); i++) {
        const AskPart &part = ask.parts[i];
        if (part.zone->told) { part.zone->told->set(part.claim.key_hash(), answer.parts[i].own); }
    }

    set_windows(ask, answer);
    if (ask.notice != nullptr) {
        Notice &notice = *ask.notice;
        ask.notice = nullptr;
        notice.events->answered(notice, ask, answer, sent);
        return;
    }

    bool refused = answer.granted < static_cast<int64_t>(ask.asked_units)
                   && remember_refusals(ask, answer, sent);

    units_settled(ask, answer.parts[0].lost);
    add_leases(ask, answer, sent);
    tell_answer(ask, ask.asked, answer, true);
    if (ask.leased_units) {
        /* waiters that came while the call was under way need not ask */
        for (Waiter &waiter : ask.waiters) {
            if (!admit_by_leases(waiter)) { break; }
            ask.units--;
        }
    }

    if (refused) {
        /* waiters that came since then need not ask, unless they are to be recorded */
        tell_answer(ask, ask.waiters, answer, false);
        const bool is_recorded = std::any_of(ask.parts.begin(), ask.parts.end(),
                                             [](auto &part) { return records(part.claim); });
        if (!is_recorded) { ask.units = 0; }
    }

    unset_windows(ask);
}

} // namespace

void script_answered(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<AskCall &>(to);
    if (reply == nullptr) {
        fail_call(node, call);
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        call_refused(node, call, *reply);
        return;
    }

    if (reply->type != REDIS_REPLY_ARRAY || !is_script_reply(call, *reply)) {
        node.blame(*reply);
        fail_call(node, call);
        return;
    }

    node_answered(node);
    node.redis->client.calls->latencies.add(clock_us() - call.sent_us);
    /* a time that is compared with this one later may be so old */
    const ngx_msec_t sent = call.sent - std::min(call.sent, node.settings->clock_age_ms);
    ScriptReply script_reply(*reply);
    Answer answer;
    while (!call.asks.empty()) {
        Ask &ask = call.asks.pop_front();
        script_reply.read(ask, &answer);
        handle_answer(ask, answer, sent);
        ask_done(ask);
    }

    end_call(node, call);
}

void add_refusal(const RemoteZone &zone, const Claim &claim, const Verdict &verdict,
                 ngx_msec_t asked) {
    if (zone.refusals == nullptr) {
        /* a probe's */
        return;
    }

    Refusal refusal;
    refusal.until_ms = asked + verdict.retry_after_ms;
    refusal.limit = verdict.limit;
    refusal.remaining = verdict.remaining;
    refusal.reset_ms = verdict.reset_ms ? asked + verdict.reset_ms : 0;
    if (records(claim)) { refusal.lasts_ms = kRecordedRefusalMs; }

    refusal.admits = verdict.retry_after_ms == 0;

    zone.refusals->add(refusal_hash(claim), ngx_current_msec, refusal);
}

} // namespace limit_sliding
