
/*
 * Copyright (C) the limit_sliding authors
 */

/* What the script's replies say, as scripts.h describes. */

#include "redis/script_reply.hpp"
#include "ngx/ngx.hpp"
#include "redis/scripts.hpp"

namespace limit_sliding {

static ngx_uint_t is_state(const Policy *policy, int64_t *number);
static void bad_limit(RemoteZone *zone);

/* Is this array what the script returns?  Other numbers are not for the core,
 * which divides by the limit. */

ngx_uint_t call_is_answered(AskCall *call, Reply *reply)
{
    int64_t *number;
    ngx_uint_t i;
    ngx_queue_t *q;
    Ask *ask;

    number = reply->numbers;

    if (reply->n != 1 + call->numbers || *number++ < 0) {
        return 0;
    }

    for (q = ngx_queue_head(&call->asks); q != ngx_queue_sentinel(&call->asks);
         q = ngx_queue_next(q)) {
        ask = ngx_queue_data(q, Ask, queue);

        if (*number < 0 || *number > (int64_t)ask->asked_units) {
            return 0;
        }

        number++;

        for (i = 0; i < ask->nparts; i++) {
            if (!is_state(ask->parts[i].claim.policy, number)) {
                return 0;
            }

            number
                += 1 + limit_sliding::remote_values(ask->parts[i].claim.policy);

            if (ask->parts[i].held && *number++ < 0) {
                return 0;
            }
        }
    }

    return 1;
}

/* A limit, and the values of an algorithm. */

static ngx_uint_t is_state(const Policy *policy, int64_t *number)
{
    int64_t limit, least;
    ngx_uint_t i;

    limit = *number;

    if (limit > kScriptOwn) {
        limit -= kScriptOwn;
    }

    if (limit < -(int64_t)kLimitMax || limit > (int64_t)kLimitMax) {
        return 0;
    }

    least = (policy->algorithm == Algorithm::kLog) ? -1 : 0;

    for (i = 1; i <= limit_sliding::remote_values(policy); i++) {
        if (number[i] < least) {
            return 0;
        }
    }

    return 1;
}

/* Returns where the next ask's numbers begin. */

int64_t *read_answer(Ask *ask, uint64_t now_ms, int64_t *number, Answer *answer)
{
    int64_t limit;
    ngx_uint_t i;
    RemoteState *remote;
    AskPart *part;

    answer->granted = *number++;
    answer->refused = 0;

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];
        remote = &answer->remotes[i];

        limit = *number++;

        answer->off[i] = (limit == 0);
        answer->own[i] = (limit == 0) ? kOwnOff : kOwnNone;

        if (limit > kScriptOwn) {
            limit -= kScriptOwn;
            answer->own[i] = (uint32_t)limit;

        } else if (limit < 0) {
            bad_limit(part->zone);
            limit = -limit;
        }

        remote->now_ms = now_ms;
        remote->limit = limit ? (uint32_t)limit : part->claim.limit;
        remote->values = number;

        number += limit_sliding::remote_values(part->claim.policy);

        answer->forgotten[i] = part->held ? *number++ : 0;
    }

    return number;
}

/* Of the i-th part, after so many units of the call. */

void describe_part(Ask *ask, Answer *answer, ngx_uint_t i, uint32_t before,
                   ngx_uint_t admitted, Verdict *verdict)
{
    Claim *claim;

    claim = &ask->parts[i].claim;

    if (answer->off[i]) {
        ngx_memzero(verdict, sizeof(Verdict));
        verdict->limit = claim->limit;
        verdict->remaining = claim->limit;
        return;
    }

    limit_sliding::remote_describe(claim->policy, &answer->remotes[i],
                                   claim->cost, before, admitted, claim->look,
                                   verdict);
}

static void bad_limit(RemoteZone *zone)
{
    ngx_atomic_uint_t after;

    if (zone->log_after == NULL) {
        /* a probe's */
        return;
    }

    after = *zone->log_after;

    if ((after && (ngx_msec_int_t)(after - ngx_current_msec) > 0)
        || !ngx_atomic_cmp_set(zone->log_after, after,
                               ngx_current_msec + 60 * 1000)) {
        /* another worker, too, has seen one */
        return;
    }

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "invalid limit of a key of zone \"%V\" in redis, "
                  "the zone's rate applies",
                  &zone->name);
}

} // namespace limit_sliding
