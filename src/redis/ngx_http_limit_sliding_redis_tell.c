
/*
 * Copyright (C) the limit_sliding authors
 */


/* Replies to calls, and the requests that learn from them. */


#include "ngx_http_limit_sliding_redis_node.h"

#include <hiredis/hiredis.h>


/* What a reply says of an ask. */

typedef struct {
    int64_t                  granted;
    limit_sliding_remote_t   remotes[NGX_HTTP_LIMIT_SLIDING_CLAIMS];
    unsigned                 off[NGX_HTTP_LIMIT_SLIDING_CLAIMS];
    unsigned                 refused;              /* still, all who ask */
} ngx_http_limit_sliding_answer_t;


static void ngx_http_limit_sliding_call_failed(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call);
static void ngx_http_limit_sliding_call_refused(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);
static int64_t *ngx_http_limit_sliding_read_answer(
    ngx_http_limit_sliding_ask_t *ask, uint64_t now_ms, int64_t *number,
    ngx_http_limit_sliding_answer_t *answer);
static void ngx_http_limit_sliding_answer(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_answer_t *answer, ngx_msec_t sent);
static void ngx_http_limit_sliding_remember(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_answer_t *answer, ngx_msec_t sent);
static void ngx_http_limit_sliding_tell_answer(
    ngx_http_limit_sliding_ask_t *ask, ngx_queue_t *waiters,
    ngx_http_limit_sliding_answer_t *answer, ngx_uint_t admit);
static void ngx_http_limit_sliding_tell_claims(
    ngx_http_limit_sliding_ask_t *ask, ngx_http_limit_sliding_waiter_t *waiter,
    ngx_http_limit_sliding_answer_t *answer, uint32_t before);
static void ngx_http_limit_sliding_describe_part(
    ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_answer_t *answer, ngx_uint_t i, uint32_t before,
    ngx_uint_t admitted, limit_sliding_verdict_t *verdict);
static void ngx_http_limit_sliding_bad_limit(
    ngx_http_limit_sliding_remote_zone_t *zone);


/* The handler of the script's calls. */

void
ngx_http_limit_sliding_answered(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call, ngx_http_limit_sliding_reply_t *reply)
{
    int64_t                          *number;
    uint64_t                          now_ms;
    ngx_queue_t                      *q;
    ngx_http_limit_sliding_ask_t     *ask;
    ngx_http_limit_sliding_answer_t   answer;

    if (reply == NULL) {
        ngx_http_limit_sliding_call_failed(node, call);
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_http_limit_sliding_call_refused(node, call, reply);
        return;
    }

    if (reply->type != REDIS_REPLY_ARRAY
        || !ngx_http_limit_sliding_call_is_answered(call, reply))
    {
        ngx_http_limit_sliding_node_blame(node, reply);
        ngx_http_limit_sliding_call_failed(node, call);
        return;
    }

    ngx_http_limit_sliding_redis_succeeded(node->redis);
    ngx_http_limit_sliding_redis_count(node->redis, call);

    number = reply->numbers;
    now_ms = *number++;

    while (!ngx_queue_empty(&call->asks)) {
        q = ngx_queue_head(&call->asks);
        ngx_queue_remove(q);

        ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

        number = ngx_http_limit_sliding_read_answer(ask, now_ms, number,
                                                    &answer);

        ngx_http_limit_sliding_answer(ask, &answer, call->sent);
        ngx_http_limit_sliding_ask_done(node->redis, ask);
    }

    ngx_free(call);

    if (node->redis->ndue) {
        /* some wait for a call to end */
        ngx_post_event(&node->redis->flush, &ngx_posted_events);
    }
}


static void
ngx_http_limit_sliding_call_failed(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call)
{
    ngx_queue_t                   *q;
    ngx_http_limit_sliding_ask_t  *ask;

    (void) ngx_atomic_fetch_add(&node->redis->traffic->failed, 1);

    while (!ngx_queue_empty(&call->asks)) {
        q = ngx_queue_head(&call->asks);
        ngx_queue_remove(q);

        ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

        ngx_http_limit_sliding_fail_waiters(&ask->asked);
        ngx_http_limit_sliding_ask_done(node->redis, ask);
    }

    ngx_free(call);

    if (node->redis->ndue) {
        ngx_post_event(&node->redis->flush, &ngx_posted_events);
    }
}


/* Redis answered with an error, which is not a verdict. */

static void
ngx_http_limit_sliding_call_refused(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call, ngx_http_limit_sliding_reply_t *reply)
{
#define ngx_http_limit_sliding_is(reply, code)                                \
    (reply->len >= sizeof(code) - 1                                           \
     && ngx_strncmp(reply->text, code, sizeof(code) - 1) == 0)

    if (ngx_http_limit_sliding_is(reply, "NOSCRIPT") && !call->whole) {

        /* the one command that is known not to have run */

        call->whole = 1;

        if (ngx_http_limit_sliding_call_script(node, call) == NGX_OK) {
            ngx_post_event(&node->redis->flush, &ngx_posted_events);
            return;
        }
    }

    ngx_http_limit_sliding_redis_log(node->redis, 0, "%s",
                                     ngx_http_limit_sliding_reply_text(reply));
    ngx_http_limit_sliding_redis_failed(node->redis);

    if (ngx_http_limit_sliding_is(reply, "READONLY")
        || ngx_http_limit_sliding_is(reply, "MASTERDOWN"))
    {
        /* the name may mean another server by now */

        node->broken = "it is a replica";
    }

    ngx_http_limit_sliding_call_failed(node, call);
}


/* Returns where the next ask's numbers begin. */

static int64_t *
ngx_http_limit_sliding_read_answer(ngx_http_limit_sliding_ask_t *ask,
    uint64_t now_ms, int64_t *number, ngx_http_limit_sliding_answer_t *answer)
{
    int64_t                         limit;
    ngx_uint_t                      i;
    limit_sliding_remote_t         *remote;
    ngx_http_limit_sliding_part_t  *part;

    answer->granted = *number++;
    answer->refused = 0;

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];
        remote = &answer->remotes[i];

        limit = *number++;

        answer->off[i] = (limit == 0);

        if (limit < 0) {
            ngx_http_limit_sliding_bad_limit(part->zone);
            limit = -limit;
        }

        remote->now_ms = now_ms;
        remote->limit = limit ? (uint32_t) limit : part->claim.limit;
        remote->values = number;

        number += limit_sliding_remote_values(part->claim.policy);
    }

    return number;
}


static void
ngx_http_limit_sliding_answer(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_answer_t *answer, ngx_msec_t sent)
{
    if (answer->granted < (int64_t) ask->asked_units) {
        ngx_http_limit_sliding_remember(ask, answer, sent);
    }

    ngx_http_limit_sliding_tell_answer(ask, &ask->asked, answer, 1);

    if (answer->refused) {
        /* who came since then need not ask */
        ngx_http_limit_sliding_tell_answer(ask, &ask->waiters, answer, 0);
        ask->units = 0;
    }
}


/* Until when will whoever asks be rejected?  The time counts from when it was
 * asked, which is before it was decided. */

static void
ngx_http_limit_sliding_remember(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_answer_t *answer, ngx_msec_t sent)
{
    ngx_uint_t                      i;
    limit_sliding_claim_t          *claim;
    limit_sliding_refusal_t         refusal;
    limit_sliding_verdict_t         verdict;
    ngx_http_limit_sliding_part_t  *part;

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];
        claim = &part->claim;

        ngx_http_limit_sliding_describe_part(ask, answer, i, answer->granted,
                                             0, &verdict);

        if (verdict.retry_after_ms == 0
            || verdict.retry_after_ms == LIMIT_SLIDING_NEVER
            || (ngx_msec_int_t) (sent + verdict.retry_after_ms
                                 - ngx_current_msec) <= 0)
        {
            continue;
        }

        answer->refused = 1;

        if (part->zone->refusals) {
            refusal.until_ms = sent + verdict.retry_after_ms;
            refusal.limit = verdict.limit;
            refusal.remaining = verdict.remaining;

            limit_sliding_refusals_add(part->zone->refusals,
                                       limit_sliding_claim_hash(claim, 1),
                                       ngx_current_msec, &refusal);
        }
    }
}


/* In order of arrival; none if not to `admit`. */

static void
ngx_http_limit_sliding_tell_answer(ngx_http_limit_sliding_ask_t *ask,
    ngx_queue_t *waiters, ngx_http_limit_sliding_answer_t *answer,
    ngx_uint_t admit)
{
    uint32_t                          before;
    ngx_queue_t                      *q;
    ngx_http_limit_sliding_waiter_t  *waiter;

    while (!ngx_queue_empty(waiters)) {
        q = ngx_queue_head(waiters);
        waiter = ngx_queue_data(q, ngx_http_limit_sliding_waiter_t, queue);

        waiter->admitted = (admit && (int64_t) waiter->turn < answer->granted);

        before = waiter->admitted ? waiter->turn : (uint32_t) answer->granted;

        ngx_http_limit_sliding_tell_claims(ask, waiter, answer, before);

        ngx_http_limit_sliding_tell(waiter, NGX_HTTP_LIMIT_SLIDING_TOLD);
    }
}


static void
ngx_http_limit_sliding_tell_claims(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_waiter_t *waiter,
    ngx_http_limit_sliding_answer_t *answer, uint32_t before)
{
    ngx_uint_t                        i, rejecting;
    limit_sliding_claim_t            *claim;
    limit_sliding_verdict_t          *verdict;
    ngx_http_limit_sliding_remote_t  *remote;

    rejecting = 0;

    for (i = 0; i < ask->nparts; i++) {
        claim = &waiter->claims[i];
        remote = claim->remote;
        verdict = &remote->verdict;

        ngx_http_limit_sliding_describe_part(ask, answer, i, before,
                                             waiter->admitted, verdict);

        remote->off = answer->off[i];
        claim->limit = verdict->limit;
        claim->verdict = verdict;
        claim->outcome = LIMIT_SLIDING_ADMITTED;

        if (!waiter->admitted && verdict->retry_after_ms) {
            claim->outcome = LIMIT_SLIDING_REJECTED;
            rejecting++;
        }
    }

    if (!waiter->admitted && rejecting == 0) {

        /* by a state of a time which the server's clock is yet to reach */

        remote = waiter->claims[0].remote;
        remote->verdict.retry_after_ms = 1;
        waiter->claims[0].outcome = LIMIT_SLIDING_REJECTED;
    }
}


static void
ngx_http_limit_sliding_describe_part(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_answer_t *answer, ngx_uint_t i, uint32_t before,
    ngx_uint_t admitted, limit_sliding_verdict_t *verdict)
{
    limit_sliding_claim_t  *claim;

    claim = &ask->parts[i].claim;

    if (answer->off[i]) {
        ngx_memzero(verdict, sizeof(limit_sliding_verdict_t));
        verdict->limit = claim->limit;
        verdict->remaining = claim->limit;
        return;
    }

    limit_sliding_remote_describe(claim->policy, &answer->remotes[i],
                                  claim->cost, before, admitted, claim->look,
                                  verdict);
}


/* The ask is in no queue: it is due again, or over. */

void
ngx_http_limit_sliding_ask_done(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_ask_t *ask)
{
    ask->in_call = 0;

    if (ask->units) {
        ngx_queue_insert_tail(&redis->due, &ask->queue);
        redis->ndue++;
        ngx_post_event(&redis->flush, &ngx_posted_events);
        return;
    }

    ngx_rbtree_delete(&redis->asks, &ask->node);
    ngx_free(ask);
}


static void
ngx_http_limit_sliding_bad_limit(ngx_http_limit_sliding_remote_zone_t *zone)
{
    if ((ngx_msec_int_t) (zone->log_after - ngx_current_msec) > 0) {
        return;
    }

    zone->log_after = ngx_current_msec + 60 * 1000;

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "invalid limit of a key of zone \"%V\" in redis, "
                  "the zone's rate applies", &zone->name);
}
