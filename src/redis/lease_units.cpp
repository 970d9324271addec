/* Copyright (C) the limit_sliding authors */

#include "redis/lease_units.hpp"

#include <algorithm>

#include "redis/logic/leases.hpp"

namespace limit_sliding {

namespace {

bool can_lease(const RemoteZone &zone, const Claim &claim) {
    return zone.lease && Leases::can_serve(claim);
}

/* How many such requests more a call may ask for. */
uint64_t wanted(const Ask &ask) {
    uint64_t extra = kNarrowMax;
    for (const AskPart &part : ask.parts) {
        const Claim &claim = part.claim;
        if (!can_lease(*part.zone, claim)) { return 0; }

        uint64_t needed = static_cast<uint64_t>(ask.asked_units) * claim.cost;
        uint64_t units = part.zone->leases->want(claim, part.zone->lease,
                                                 std::min(needed, kNarrowMax), ngx_current_msec);

        extra = std::min(extra, units / claim.cost);
    }
    return extra;
}

} // namespace

bool spend_leases(Span<Claim> claims) {
    for (Claim &claim : claims) {
        RemoteClaim &remote = remote_of(claim);
        if (!can_lease(*remote.zone, claim)
            || !remote.zone->leases->spend(&claim, ngx_current_msec, &remote.verdict)) {
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

size_t take_leases(Ask &ask) {
    size_t nheld = 0;
    for (AskPart &part : ask.parts) {
        part.held = can_lease(*part.zone, part.claim) && part.zone->leases->held(part.claim);

        nheld += part.held;
    }

    ask.leased_units = wanted(ask);
    ask.asked_units += ask.leased_units;

    /* what is leased of a bucket must not run off before it is spent */
    for (AskPart &part : ask.parts) {
        if (part.claim.policy->algorithm == Algorithm::kTokenBucket) {
            part.leased = ask.leased_units;
        }
    }
    return nheld;
}

void add_leases(const Ask &ask, const Answer &answer, ngx_msec_t sent) {
    auto needed = static_cast<int64_t>(ask.asked_units - ask.leased_units);
    auto units = static_cast<uint64_t>(std::max<int64_t>(answer.granted - needed, 0));

    if (units) { (void)ngx_atomic_fetch_add(&ask.redis->client.calls->leased, units); }

    const PartAnswer *told = answer.parts;
    for (const AskPart &part : ask.parts) {
        const PartAnswer &part_told = *told++;
        const Claim &claim = part.claim;
        if (!can_lease(*part.zone, claim) || part_told.is_unlimited()) { continue; }

        auto forgotten = static_cast<uint64_t>(part_told.forgotten);
        if (forgotten && forgotten <= ngx_current_msec) {
            /* of a time before this machine's began there are none */
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
