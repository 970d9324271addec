
/*
 * Copyright (C) the limit_sliding authors
 */


/* Units that a call takes beyond those which requests wait for. */


#include "redis/node.h"


#define ngx_http_limit_sliding_can_lease(zone, claim)                         \
    ((zone)->lease && limit_sliding_leases_can(claim))


/*
 * A call is about to ask for `asked_units`: how many more?  Returns of how many
 * keys some are left here: of these Redis tells whether they were forgotten.
 */

ngx_uint_t
ngx_http_limit_sliding_lease_ask(ngx_http_limit_sliding_ask_t *ask)
{
    uint64_t                        needed;
    uint32_t                        units;
    ngx_uint_t                      i, extra, nheld;
    limit_sliding_claim_t          *claim;
    ngx_http_limit_sliding_part_t  *part;

    ask->leased_units = 0;
    nheld = 0;

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];
        claim = &part->claim;

        part->held = (ngx_http_limit_sliding_can_lease(part->zone, claim)
                      && limit_sliding_leases_held(part->zone->leases, claim));

        nheld += part->held;
    }

    extra = LIMIT_SLIDING_LIMIT_MAX;

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];
        claim = &part->claim;

        if (!ngx_http_limit_sliding_can_lease(part->zone, claim)) {
            return nheld;
        }

        needed = (uint64_t) ask->asked_units * claim->cost;

        units = limit_sliding_leases_want(part->zone->leases, claim,
                                 part->zone->lease,
                                 ngx_min(needed, LIMIT_SLIDING_LIMIT_MAX),
                                 ngx_current_msec);

        extra = ngx_min(extra, units / claim->cost);
    }

    ask->leased_units = extra;
    ask->asked_units += extra;

    /* what is leased of a bucket must not run off before it is spent */

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];

        if (part->claim.policy->algorithm == LIMIT_SLIDING_TOKEN_BUCKET) {
            part->leased = extra;
        }
    }

    return nheld;
}


/* Those that were granted; if none were, the leases learn of the key. */

void
ngx_http_limit_sliding_lease_add(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_answer_t *answer, ngx_msec_t sent)
{
    ngx_uint_t                      i, needed, units;
    limit_sliding_claim_t          *claim;
    limit_sliding_verdict_t         verdict;
    ngx_http_limit_sliding_part_t  *part;

    needed = ask->asked_units - ask->leased_units;
    units = (answer->granted > (int64_t) needed) ? answer->granted - needed : 0;

    if (units) {
        (void) ngx_atomic_fetch_add(&ask->redis->traffic->leased, units);
    }

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];
        claim = &part->claim;

        if (!ngx_http_limit_sliding_can_lease(part->zone, claim)
            || answer->off[i])
        {
            continue;
        }

        /* of a time before this machine's began there are none */

        if (answer->forgotten[i]
            && (uint64_t) answer->forgotten[i] <= ngx_current_msec)
        {
            limit_sliding_leases_forget(part->zone->leases, claim,
                                        ngx_current_msec + 1
                                        - answer->forgotten[i]);
        }

        ngx_http_limit_sliding_describe_part(ask, answer, i, answer->granted,
                                             0, &verdict);

        limit_sliding_leases_add(part->zone->leases, claim,
                                 &answer->remotes[i], &verdict,
                                 units * claim->cost, sent, ngx_current_msec);
    }
}


/* Who came while the call was under way need not ask for what it brought. */

void
ngx_http_limit_sliding_lease_waiters(ngx_http_limit_sliding_ask_t *ask)
{
    ngx_queue_t                      *q;
    ngx_http_limit_sliding_waiter_t  *waiter;

    while (!ngx_queue_empty(&ask->waiters)) {
        q = ngx_queue_head(&ask->waiters);
        waiter = ngx_queue_data(q, ngx_http_limit_sliding_waiter_t, queue);

        if (!ngx_http_limit_sliding_lease(waiter->claims, ask->nparts)) {
            break;
        }

        ngx_http_limit_sliding_lease_tell(waiter->claims, ask->nparts);

        waiter->admitted = 1;
        ask->units--;

        ngx_http_limit_sliding_tell(waiter, NGX_HTTP_LIMIT_SLIDING_TOLD);
    }
}


ngx_uint_t
ngx_http_limit_sliding_lease(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims)
{
    ngx_uint_t                        i;
    limit_sliding_claim_t            *claim;
    ngx_http_limit_sliding_remote_t  *remote;

    for (i = 0; i < nclaims; i++) {
        claim = &claims[i];
        remote = claim->remote;

        if (!ngx_http_limit_sliding_can_lease(remote->zone, claim)
            || !limit_sliding_leases_spend(remote->zone->leases, claim,
                                           ngx_current_msec, &remote->verdict))
        {
            ngx_http_limit_sliding_lease_return(claims, i);
            return 0;
        }
    }

    return 1;
}


void
ngx_http_limit_sliding_lease_tell(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims)
{
    ngx_uint_t                        i;
    ngx_http_limit_sliding_remote_t  *remote;

    for (i = 0; i < nclaims; i++) {
        remote = claims[i].remote;
        remote->source = NGX_HTTP_LIMIT_SLIDING_LEASE;

        claims[i].limit = remote->verdict.limit;
        claims[i].verdict = &remote->verdict;
        claims[i].outcome = LIMIT_SLIDING_ADMITTED;
    }
}


void
ngx_http_limit_sliding_lease_return(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims)
{
    ngx_uint_t                        i;
    ngx_http_limit_sliding_remote_t  *remote;

    for (i = 0; i < nclaims; i++) {
        remote = claims[i].remote;

        limit_sliding_leases_return(remote->zone->leases, &claims[i],
                                    ngx_current_msec);
    }
}
