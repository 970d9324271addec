
/*
 * Copyright (C) the limit_sliding authors
 */


/* Replies to calls, and the requests that learn from them. */


#include "redis/cluster.h"

#include <hiredis/hiredis.h>


static void ngx_http_limit_sliding_call_refused(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);
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

    ngx_http_limit_sliding_redis_succeeded(node);
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

    if (node->ndue) {
        /* some wait for a call to end */
        ngx_post_event(&node->flush, &ngx_posted_events);
    }
}


void
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

    if (node->ndue) {
        ngx_post_event(&node->flush, &ngx_posted_events);
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

    if (node->redis->cluster
        && ngx_http_limit_sliding_redirect(node, call, reply) == NGX_OK)
    {
        return;
    }

    if (ngx_http_limit_sliding_is(reply, "NOSCRIPT") && !call->whole) {

        /* the one command that is known not to have run */

        call->whole = 1;

        if (ngx_http_limit_sliding_call_script(node, call) == NGX_OK) {
            ngx_post_event(&node->flush, &ngx_posted_events);
            return;
        }
    }

    ngx_http_limit_sliding_redis_log(node->redis, 0, "%s",
                                     ngx_http_limit_sliding_reply_text(reply));
    ngx_http_limit_sliding_redis_failed(node);

    if (ngx_http_limit_sliding_is(reply, "READONLY")
        || ngx_http_limit_sliding_is(reply, "MASTERDOWN"))
    {
        /* the name may mean another server by now */

        node->broken = "it is a replica";
    }

    ngx_http_limit_sliding_call_failed(node, call);
}


static void
ngx_http_limit_sliding_answer(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_answer_t *answer, ngx_msec_t sent)
{
    ngx_uint_t                      i;
    ngx_http_limit_sliding_part_t  *part;

    /* these hold while Redis is away */

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];

        if (part->zone->told) {
            limit_sliding_limit_cache_set(part->zone->told, part->claim.hash,
                                          answer->own[i]);
        }
    }

    if (answer->granted < (int64_t) ask->asked_units) {
        ngx_http_limit_sliding_remember(ask, answer, sent);
    }

    ngx_http_limit_sliding_lease_add(ask, answer, sent);

    ngx_http_limit_sliding_tell_answer(ask, &ask->asked, answer, 1);

    if (ask->leased_units) {
        ngx_http_limit_sliding_lease_waiters(ask);
    }

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
    ngx_uint_t               i;
    limit_sliding_verdict_t  verdicts[NGX_HTTP_LIMIT_SLIDING_CLAIMS], *verdict;

    for (i = 0; i < ask->nparts; i++) {
        verdict = &verdicts[i];

        ngx_http_limit_sliding_describe_part(ask, answer, i, answer->granted,
                                             0, verdict);

        if (verdict->retry_after_ms == LIMIT_SLIDING_NEVER
            || (verdict->retry_after_ms
                && (ngx_msec_int_t) (sent + verdict->retry_after_ms
                                     - ngx_current_msec) <= 0))
        {
            verdict->retry_after_ms = 0;
        }

        if (verdict->retry_after_ms) {
            answer->refused = 1;
        }
    }

    if (!answer->refused) {
        return;
    }

    /* those that would admit are shown to who is rejected by the others */

    for (i = 0; i < ask->nparts; i++) {
        ngx_http_limit_sliding_add_refusal(ask->parts[i].zone,
                                           &ask->parts[i].claim,
                                           &verdicts[i], sent);
    }
}


/* The verdict is of the time when it was asked for. */

void
ngx_http_limit_sliding_add_refusal(ngx_http_limit_sliding_remote_zone_t *zone,
    limit_sliding_claim_t *claim, limit_sliding_verdict_t *verdict,
    ngx_msec_t asked)
{
    limit_sliding_refusal_t  refusal;

    if (zone->refusals == NULL) {
        /* a probe's */
        return;
    }

    refusal.until_ms = asked + verdict->retry_after_ms;
    refusal.limit = verdict->limit;
    refusal.remaining = verdict->remaining;
    refusal.reset_ms = verdict->reset_ms ? asked + verdict->reset_ms : 0;
    refusal.admits = (verdict->retry_after_ms == 0);

    limit_sliding_refusals_add(zone->refusals,
                               limit_sliding_refusal_hash(claim),
                               ngx_current_msec, &refusal);
}


/* In order of arrival; none but by leases if not to `admit`. */

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

        if (!waiter->admitted
            && ngx_http_limit_sliding_lease(waiter->claims, ask->nparts))
        {
            waiter->admitted = 1;
            ngx_http_limit_sliding_lease_tell(waiter->claims, ask->nparts);

        } else {
            ngx_http_limit_sliding_tell_claims(ask, waiter, answer, before);
        }

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

        remote->taken_ms = answer->remotes[i].now_ms;
        remote->taken_of = answer->remotes[i].values[0]
                           + (uint64_t) before * claim->cost
                             * claim->policy->window_ms;

        ngx_http_limit_sliding_describe_part(ask, answer, i, before,
                                             waiter->admitted, verdict);

        remote->own = answer->own[i];
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


/* The ask is in no queue: it is due again, or over. */

void
ngx_http_limit_sliding_ask_done(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_ask_t *ask)
{
    ask->in_call = 0;
    ask->hops = 0;
    ask->asking = 0;

    if (ask->units) {
        ngx_http_limit_sliding_make_due(ask,
                         ngx_http_limit_sliding_route(redis, ask->slot));
        return;
    }

    if (ask->shared) {
        ngx_rbtree_delete(&redis->asks, &ask->node);
    }

    ngx_free(ask);
}
