/* Copyright (C) the limit_sliding authors */

#include "redis/calls/lease_units.hpp"

#include <algorithm>

#include "redis/shared/leases.hpp"

namespace limit_sliding {

namespace {

bool can_lease(const RemoteZone &zone, const Claim &claim) {
    return zone.lease && Leases::can_serve(claim);
}

/* Returns for how many further requests a call may lease units that asks for `asked`. */
uint64_t wanted(const AskPart &part, const Claim &claim, uint64_t asked) {
    uint64_t needed = std::min(asked * claim.cost, kNarrowMax);
    return part.zone->leases->want(claim, part.zone->lease, needed, ngx_current_msec) / claim.cost;
}

} // namespace

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
        set_told(claim, Outcome::kAdmitted);
    }
}

void take_leases(Ask &ask) {
    uint64_t extra = kNarrowMax;
    for (AskPart &part : ask.parts) {
        part.held = false;
        if (!can_lease(*part.zone, part.claim)) {
            extra = 0;
            continue;
        }

        Policy policy = known_policy(part);
        Claim claim = part.claim;
        claim.set_policy(policy);
        part.held = part.zone->leases->held(claim);
        extra = std::min(extra, wanted(part, claim, ask.asked_units));
    }

    ask.leased_units = extra;
    ask.asked_units += ask.leased_units;

    /* leased units of a bucket must not run off before they are spent */
    for (AskPart &part : ask.parts) {
        if (part.claim.policy->algorithm == Algorithm::kTokenBucket) {
            part.leased = ask.leased_units;
        }
    }
}

void add_leases(const Ask &ask, const Answer &answer, ngx_msec_t sent) {
    auto needed = static_cast<int64_t>(ask.asked_units - ask.leased_units);
    auto units = static_cast<uint64_t>(std::max<int64_t>(answer.granted - needed, 0));

    if (units) { add(&ask.redis->client.calls->leased, units); }

    const PartAnswer *told = answer.parts;
    for (const AskPart &part : ask.parts) {
        const PartAnswer &part_told = *told++;
        const Claim &claim = part.claim;
        if (!can_lease(*part.zone, claim) || !part_told.is_limited()) { continue; }

        auto forgotten = static_cast<uint64_t>(part_told.forgotten);
        if (forgotten && forgotten <= ngx_current_msec) {
            /* there are no leases from before the start of this machine's clock */
            part.zone->leases->forget(claim, ngx_current_msec + 1 - forgotten);
        }

        Verdict verdict
            = describe_part(part, part_told, static_cast<uint32_t>(answer.granted), false);
        part.zone->leases->add(claim, part_told.state, verdict, units * claim.cost, sent,
                               ngx_current_msec);
    }
}

bool admit_by_leases(Waiter &waiter) {
    if (!spend_leases(waiter.claims)) { return false; }

    describe_leases(waiter.claims);
    tell_waiter(waiter, Told::kAdmitted);
    return true;
}

} // namespace limit_sliding
