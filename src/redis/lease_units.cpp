
/*
 * Copyright (C) the limit_sliding authors
 */

/* Units that a call takes beyond those which requests wait for. */

#include "redis/lease_units.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

#define can_lease(zone, claim)                                                 \
    ((zone)->lease && limit_sliding::leases_can(claim))

/*
 * A call is about to ask for `asked_units`: how many more?  Returns of how many
 * keys some are left here: of these Redis tells whether they were forgotten.
 */

ngx_uint_t lease_ask(Ask *ask)
{
    uint64_t needed;
    uint32_t units;
    ngx_uint_t i, extra, nheld;
    Claim *claim;
    AskPart *part;

    ask->leased_units = 0;
    nheld = 0;

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];
        claim = &part->claim;

        part->held = (can_lease(part->zone, claim)
                      && limit_sliding::leases_held(part->zone->leases, claim));

        nheld += part->held;
    }

    extra = kLimitMax;

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];
        claim = &part->claim;

        if (!can_lease(part->zone, claim)) {
            return nheld;
        }

        needed = (uint64_t)ask->asked_units * claim->cost;

        units = limit_sliding::leases_want(
            part->zone->leases, claim, part->zone->lease,
            ngx_min(needed, kLimitMax), ngx_current_msec);

        extra = ngx_min(extra, units / claim->cost);
    }

    ask->leased_units = extra;
    ask->asked_units += extra;

    /* what is leased of a bucket must not run off before it is spent */

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];

        if (part->claim.policy->algorithm == Algorithm::kTokenBucket) {
            part->leased = extra;
        }
    }

    return nheld;
}

/* Those that were granted; if none were, the leases learn of the key. */

void lease_add(Ask *ask, Answer *answer, ngx_msec_t sent)
{
    ngx_uint_t i, needed, units;
    Claim *claim;
    Verdict verdict;
    AskPart *part;

    needed = ask->asked_units - ask->leased_units;
    units = (answer->granted > (int64_t)needed) ? answer->granted - needed : 0;

    if (units) {
        (void)ngx_atomic_fetch_add(&ask->redis->client.traffic->leased, units);
    }

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];
        claim = &part->claim;

        if (!can_lease(part->zone, claim) || answer->off[i]) {
            continue;
        }

        /* of a time before this machine's began there are none */

        if (answer->forgotten[i]
            && (uint64_t)answer->forgotten[i] <= ngx_current_msec) {
            limit_sliding::leases_forget(part->zone->leases, claim,
                                         ngx_current_msec + 1
                                             - answer->forgotten[i]);
        }

        describe_part(ask, answer, i, answer->granted, 0, &verdict);

        limit_sliding::leases_add(part->zone->leases, claim,
                                  &answer->remotes[i], &verdict,
                                  units * claim->cost, sent, ngx_current_msec);
    }
}

/* Who came while the call was under way need not ask for what it brought. */

void lease_waiters(Ask *ask)
{
    ngx_queue_t *q;
    Waiter *waiter;

    while (!ngx_queue_empty(&ask->waiters)) {
        q = ngx_queue_head(&ask->waiters);
        waiter = ngx_queue_data(q, Waiter, queue);

        if (!spend_leases(waiter->claims, ask->nparts)) {
            break;
        }

        describe_leases(waiter->claims, ask->nparts);

        waiter->admitted = 1;
        ask->units--;

        tell_waiter(waiter, Told::kTold);
    }
}

ngx_uint_t spend_leases(Claim *claims, ngx_uint_t nclaims)
{
    ngx_uint_t i;
    Claim *claim;
    RemoteClaim *remote;

    for (i = 0; i < nclaims; i++) {
        claim = &claims[i];
        remote = claim->remote;

        if (!can_lease(remote->zone, claim)
            || !limit_sliding::leases_spend(remote->zone->leases, claim,
                                            ngx_current_msec,
                                            &remote->verdict)) {
            return_leases(claims, i);
            return 0;
        }
    }

    return 1;
}

void describe_leases(Claim *claims, ngx_uint_t nclaims)
{
    ngx_uint_t i;
    RemoteClaim *remote;

    for (i = 0; i < nclaims; i++) {
        remote = claims[i].remote;
        remote->source = Source::kLease;

        claims[i].limit = remote->verdict.limit;
        claims[i].verdict = &remote->verdict;
        claims[i].outcome = Outcome::kAdmitted;
    }
}

void return_leases(Claim *claims, ngx_uint_t nclaims)
{
    ngx_uint_t i;
    RemoteClaim *remote;

    for (i = 0; i < nclaims; i++) {
        remote = claims[i].remote;

        limit_sliding::leases_return(remote->zone->leases, &claims[i],
                                     ngx_current_msec);
    }
}

} // namespace limit_sliding
