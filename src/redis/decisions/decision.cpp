/* Copyright (C) the limit_sliding authors */

#include "redis/decisions/decision.hpp"

#include <algorithm>

#include "redis/asks/script_call.hpp"
#include "redis/shared/leases.hpp"
#include "redis/shared/refusals.hpp"

namespace limit_sliding {

namespace {

/* ---- leases ---- */

bool can_lease(const RemoteZone &zone, const Claim &claim) {
    return zone.lease && Leases::can_serve(claim);
}

/* Adds an ask to a call, with the units to be leased in its `asked_units`.  If this node has leased
 * units of a key left, Redis also replies whether the key was deleted. */
bool join(ErrandCall &call, Errand &errand) {
    if (!join_call(call, errand)) { return false; }

    auto &ask = static_cast<Ask &>(errand);
    uint64_t extra = kNarrowMax;
    for (AskPart &part : ask.parts) {
        if (!can_lease(*part.zone, part.claim)) {
            extra = 0;
            continue;
        }

        Policy policy = known_policy(part);
        Claim claim = part.claim;
        claim.set_policy(policy);
        Leases &leases = *part.zone->leases;
        part.beside = leases.held(claim) ? Beside::kMark : Beside::kNothing;

        uint64_t needed = std::min(ask.asked_units * claim.cost, kNarrowMax);
        uint64_t units = leases.want(claim, part.zone->lease, needed, ngx_current_msec);
        extra = std::min(extra, units / claim.cost);
    }

    ask.leased_units = extra;
    ask.asked_units += ask.leased_units;

    /* leased units of a bucket must not run off before they are spent */
    for (AskPart &part : ask.parts) {
        if (part.claim.policy->algorithm == Algorithm::kTokenBucket) {
            part.leased = ask.leased_units;
        }
    }
    return true;
}

/* Adds the granted units to the leases, or updates the leases from the reply if no units were
 * granted.  The call was sent at `sent` ms. */
void add_leases(const Ask &ask, const Answer &answer, ngx_msec_t sent) {
    auto needed = static_cast<int64_t>(ask.asked_units - ask.leased_units);
    auto units = static_cast<uint64_t>(std::max<int64_t>(answer.granted - needed, 0));

    if (units) { add(&ask.redis->client.calls->leased, units); }

    const PartAnswer *next = answer.parts;
    for (const AskPart &part : ask.parts) {
        const PartAnswer &part_answer = *next++;
        const Claim &claim = part.claim;
        if (!can_lease(*part.zone, claim) || part_answer.terms != Terms::kLimited) { continue; }

        auto forgotten = static_cast<uint64_t>(part_answer.forgotten);
        if (forgotten && forgotten <= ngx_current_msec) {
            /* there are no leases from before the start of this machine's clock */
            part.zone->leases->forget(claim, ngx_current_msec + 1 - forgotten);
        }

        Verdict verdict = describe_part(part, part_answer, static_cast<uint32_t>(answer.granted));
        part.zone->leases->add(claim, part_answer.state, verdict, units * claim.cost, sent,
                               ngx_current_msec);
    }
}

/* Admits a waiter by leased units.  Returns false if there are too few. */
bool admit_by_leases(Waiter &waiter) {
    if (!spend_leases(waiter.claims)) { return false; }

    describe_leases(waiter.claims);
    wake_waiter(waiter, WaitResult::kAdmitted);
    return true;
}

/* ---- replies ---- */

/* Remembers until when requests of the keys will be rejected.  The time counts from when the call
 * was sent, which is before Redis decided.  Returns true if it is still to come for any key. */
bool remember_refusals(const Ask &ask, const Answer &answer, ngx_msec_t sent) {
    Verdict verdicts[kClaimsMax];
    bool refused = false;
    for (size_t i = 0; i < ask.parts.size(); i++) {
        verdicts[i]
            = describe_part(ask.parts[i], answer.parts[i], static_cast<uint32_t>(answer.granted));

        const PartAnswer &part = answer.parts[i];
        uint64_t &wait_ms = verdicts[i].retry_after_ms;
        wait_ms = part.terms == Terms::kBlocked ? kRefusalMs
                                                : part.state.refused_ms(part.policy, verdicts[i]);
        if (wait_ms == kNever || ms_until(sent + wait_ms) <= 0) { wait_ms = 0; }

        refused = refused || wait_ms;
    }

    if (!refused) { return false; }

    /* the headers of a rejection also show the limits that admit */
    for (size_t i = 0; i < ask.parts.size(); i++) {
        add_refusal(*ask.parts[i].zone, ask.parts[i].claim, verdicts[i], sent);
    }
    return true;
}

/* Decides a claim that is admitted, and keeps the state for a verdict.  The verdict of a leaky
 * bucket is computed at once, because each request reads its delay. */
void admit(Claim &claim, const RemoteState &state, uint32_t before) {
    RemoteClaim &remote = remote_of(claim);
    remote.verdict = {state.limit, 0, 0, 0, 0, 0};
    decide_remotely(claim, Outcome::kAdmitted, Standing::kGivenLate);
    remote.found = state;
    remote.found.values = remote.values;
    remote.before = before;
    std::copy_n(state.values, remote_values(*claim.policy, state.values[0]), remote.values);
    if (claim.policy->algorithm == Algorithm::kLeakyBucket) { complete_verdict(claim); }
}

/* Decides the claims of a request, which is admitted or not, by their state after `before`
 * units. */
void decide(const Ask &ask, Span<Claim> claims, const Answer &answer, uint32_t before,
            bool admitted) {
    bool rejected = false;
    for (size_t i = 0; i < ask.parts.size(); i++) {
        Claim &claim = claims[i];
        RemoteClaim &remote = remote_of(claim);
        const PartAnswer &part = answer.parts[i];
        set_window(claim, part.own);
        if (!is_settled(claim)) {
            remote.taken = part.state.taken(*claim.policy, before * claim.cost);
        }

        remote.own = part.own;
        if (admitted && part.terms == Terms::kLimited && !is_settled(claim)) {
            admit(claim, part.state, before);
            continue;
        }

        remote.verdict = describe_part(ask.parts[i], part, before);

        bool rejects = !admitted && remote.verdict.retry_after_ms;
        decide_remotely(claim, rejects ? Outcome::kRejected : Outcome::kAdmitted,
                        standing_of(part.terms));
        rejected = rejected || rejects;
    }

    if (!admitted && !rejected) {
        /* the state is of a time that the server's clock has not reached yet */
        remote_of(claims[0]).verdict.retry_after_ms = 1;
        claims[0].outcome = Outcome::kRejected;
    }
}

/* Decides the waiters in order of arrival.  If the answer is not to them, only leases admit
 * them. */
void tell_answer(const Ask &ask, WaiterList &waiters, const Answer &answer, bool to_them) {
    for (Waiter &waiter : waiters) {
        bool granted = to_them && static_cast<int64_t>(waiter.turn) < answer.granted;
        if (!granted && admit_by_leases(waiter)) { continue; }

        auto before = static_cast<uint32_t>(granted ? waiter.turn : answer.granted);
        decide(ask, waiter.claims, answer, before, granted);
        wake_waiter(waiter, granted ? WaitResult::kAdmitted : WaitResult::kRejected);
    }
}

void take_answer(Ask &ask, const Answer &answer, ngx_msec_t sent) {
    bool refused = answer.granted < static_cast<int64_t>(ask.asked_units)
                   && remember_refusals(ask, answer, sent);

    add_leases(ask, answer, sent);
    tell_answer(ask, ask.asked, answer, true);
    if (ask.leased_units) {
        /* leases admit waiters that came while the call was under way */
        for (Waiter &waiter : ask.waiters) {
            if (!admit_by_leases(waiter)) { break; }
            ask.units--;
        }
    }

    if (refused) {
        /* later waiters are rejected by this answer; Redis must record their units, if any */
        tell_answer(ask, ask.waiters, answer, false);
        const bool is_recorded = std::any_of(ask.parts.begin(), ask.parts.end(),
                                             [](auto &part) { return records(part.claim); });
        if (!is_recorded) { ask.units = 0; }
    }

    ask_done(ask);
}

} // namespace

const AskKind kDecision
    = {{join, call_script, script_answered, fail_waiters, return_waiters}, take_answer};

void complete_verdict(const Claim &claim) {
    RemoteClaim &remote = remote_of(claim);
    if (remote.found.values == nullptr) { return; }

    remote.verdict = remote.found.describe(*claim.policy, claim.cost, remote.before, true,
                                           claim.purpose != Purpose::kConsume);
    remote.found.values = nullptr;
}

bool spend_leases(Span<Claim> claims) {
    for (Claim &claim : claims) {
        RemoteClaim &remote = remote_of(claim);
        bool spent = can_lease(*remote.zone, claim);
        if (spent) {
            know_window(claim);
            spent = remote.zone->leases->spend(&claim, ngx_current_msec, &remote.verdict);
        }

        if (!spent) {
            return_leases({claims.begin(), static_cast<size_t>(&claim - claims.begin())});
            return false;
        }
    }
    return true;
}

void return_leases(Span<Claim> claims) {
    for (const Claim &claim : claims) {
        remote_of(claim).zone->leases->give_back(claim, ngx_current_msec);
    }
}

void describe_leases(Span<Claim> claims) {
    for (Claim &claim : claims) {
        remote_of(claim).source = Source::kLease;
        decide_remotely(claim, Outcome::kAdmitted);
    }
}

void add_refusal(const RemoteZone &zone, const Claim &claim, const Verdict &verdict,
                 ngx_msec_t asked) {
    if (zone.refusals == nullptr) { return; }

    Refusal refusal;
    refusal.until_ms = verdict.retry_after_ms ? asked + verdict.retry_after_ms : 0;
    refusal.known_until_ms = ngx_current_msec + (records(claim) ? kRecordedRefusalMs : kRefusalMs);
    refusal.limit = verdict.limit;
    refusal.remaining = verdict.remaining;
    refusal.reset_ms = verdict.reset_ms ? asked + verdict.reset_ms : 0;
    zone.refusals->add(refusal_hash(claim), ngx_current_msec, refusal);
}

} // namespace limit_sliding
