
/*
 * Copyright (C) the limit_sliding authors
 */

/* Replies to calls, and the requests that learn from them. */

#include "redis/deliver.hpp"
#include "ngx/ngx.hpp"
#include "redis/lease_units.hpp"
#include "redis/resend.hpp"
#include "redis/script_call.hpp"
#include "redis/script_reply.hpp"

#include <hiredis/hiredis.h>

namespace limit_sliding {

static void call_refused(Node *node, AskCall *call, Reply *reply);
static void handle_answer(Ask *ask, Answer *answer, ngx_msec_t sent);
static void remember_refusals(Ask *ask, Answer *answer, ngx_msec_t sent);
static void tell_answer(Ask *ask, ngx_queue_t *waiters, Answer *answer,
                        ngx_uint_t admit);
static void tell_claims(Ask *ask, Waiter *waiter, Answer *answer,
                        uint32_t before);

/* The handler of the script's calls. */

void answered(Node &from, Call &base, Reply *reply)
{
    Node *node = &from;
    auto *call = static_cast<AskCall *>(&base);

    int64_t *number;
    uint64_t now_ms;
    ngx_queue_t *q;
    Ask *ask;
    Answer answer;

    if (reply == NULL) {
        call_failed(node, call);
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        call_refused(node, call, reply);
        return;
    }

    if (reply->type != REDIS_REPLY_ARRAY || !call_is_answered(call, reply)) {
        node->blame(*reply);
        call_failed(node, call);
        return;
    }

    redis_succeeded(*node);
    redis_count(node->redis, call);

    number = reply->numbers;
    now_ms = *number++;

    while (!ngx_queue_empty(&call->asks)) {
        q = ngx_queue_head(&call->asks);
        ngx_queue_remove(q);

        ask = ngx_queue_data(q, Ask, queue);

        number = read_answer(ask, now_ms, number, &answer);

        handle_answer(ask, &answer, call->sent);
        ask_done(node->redis, ask);
    }

    ngx_free(call);

    if (node->ndue) {
        /* some wait for a call to end */
        node->post_flush();
    }
}

void call_failed(Node *node, AskCall *call)
{
    ngx_queue_t *q;
    Ask *ask;

    (void)ngx_atomic_fetch_add(&node->redis->client.traffic->failed, 1);

    while (!ngx_queue_empty(&call->asks)) {
        q = ngx_queue_head(&call->asks);
        ngx_queue_remove(q);

        ask = ngx_queue_data(q, Ask, queue);

        fail_waiters(&ask->asked);
        ask_done(node->redis, ask);
    }

    ngx_free(call);

    if (node->ndue) {
        node->post_flush();
    }
}

/* Redis answered with an error, which is not a verdict. */

static void call_refused(Node *node, AskCall *call, Reply *reply)
{
#define IS_MACRO(reply, code)                                                  \
    (reply->len >= sizeof(code) - 1                                            \
     && ngx_strncmp(reply->text, code, sizeof(code) - 1) == 0)

    if (node->redis->client.nodes.is_cluster()
        && redirect_call(node, call, reply) == NGX_OK) {
        return;
    }

    if (IS_MACRO(reply, "NOSCRIPT") && !call->whole) {

        /* the one command that is known not to have run */

        call->whole = 1;

        if (call_script(node, call) == NGX_OK) {
            node->post_flush();
            return;
        }
    }

    node->log->write(0, "%s", reply_text(reply));
    redis_failed(*node);

    if (IS_MACRO(reply, "READONLY") || IS_MACRO(reply, "MASTERDOWN")) {
        /* the name may mean another server by now */

        node->set_broken("it is a replica");
    }

    call_failed(node, call);
}

static void handle_answer(Ask *ask, Answer *answer, ngx_msec_t sent)
{
    ngx_uint_t i;
    AskPart *part;

    /* these hold while Redis is away */

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];

        if (part->zone->told) {
            limit_sliding::limit_cache_set(part->zone->told, part->claim.hash,
                                           answer->own[i]);
        }
    }

    if (answer->granted < (int64_t)ask->asked_units) {
        remember_refusals(ask, answer, sent);
    }

    lease_add(ask, answer, sent);

    tell_answer(ask, &ask->asked, answer, 1);

    if (ask->leased_units) {
        lease_waiters(ask);
    }

    if (answer->refused) {
        /* who came since then need not ask */
        tell_answer(ask, &ask->waiters, answer, 0);
        ask->units = 0;
    }
}

/* Until when will whoever asks be rejected?  The time counts from when it was
 * asked, which is before it was decided. */

static void remember_refusals(Ask *ask, Answer *answer, ngx_msec_t sent)
{
    ngx_uint_t i;
    Verdict verdicts[kClaimsMax], *verdict;

    for (i = 0; i < ask->nparts; i++) {
        verdict = &verdicts[i];

        describe_part(ask, answer, i, answer->granted, 0, verdict);

        if (verdict->retry_after_ms == kNever
            || (verdict->retry_after_ms
                && (ngx_msec_int_t)(sent + verdict->retry_after_ms
                                    - ngx_current_msec)
                       <= 0)) {
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
        add_refusal(ask->parts[i].zone, &ask->parts[i].claim, &verdicts[i],
                    sent);
    }
}

/* The verdict is of the time when it was asked for. */

void add_refusal(RemoteZone *zone, Claim *claim, Verdict *verdict,
                 ngx_msec_t asked)
{
    Refusal refusal;

    if (zone->refusals == NULL) {
        /* a probe's */
        return;
    }

    refusal.until_ms = asked + verdict->retry_after_ms;
    refusal.limit = verdict->limit;
    refusal.remaining = verdict->remaining;
    refusal.reset_ms = verdict->reset_ms ? asked + verdict->reset_ms : 0;
    refusal.admits = (verdict->retry_after_ms == 0);

    limit_sliding::refusals_add(zone->refusals,
                                limit_sliding::refusal_hash(claim),
                                ngx_current_msec, &refusal);
}

/* In order of arrival; none but by leases if not to `admit`. */

static void tell_answer(Ask *ask, ngx_queue_t *waiters, Answer *answer,
                        ngx_uint_t admit)
{
    uint32_t before;
    ngx_queue_t *q;
    Waiter *waiter;

    while (!ngx_queue_empty(waiters)) {
        q = ngx_queue_head(waiters);
        waiter = ngx_queue_data(q, Waiter, queue);

        waiter->admitted = (admit && (int64_t)waiter->turn < answer->granted);

        before = waiter->admitted ? waiter->turn : (uint32_t)answer->granted;

        if (!waiter->admitted && spend_leases(waiter->claims, ask->nparts)) {
            waiter->admitted = 1;
            describe_leases(waiter->claims, ask->nparts);

        } else {
            tell_claims(ask, waiter, answer, before);
        }

        tell_waiter(waiter, Told::kTold);
    }
}

static void tell_claims(Ask *ask, Waiter *waiter, Answer *answer,
                        uint32_t before)
{
    ngx_uint_t i, rejecting;
    Claim *claim;
    Verdict *verdict;
    RemoteClaim *remote;

    rejecting = 0;

    for (i = 0; i < ask->nparts; i++) {
        claim = &waiter->claims[i];
        remote = claim->remote;
        verdict = &remote->verdict;

        remote->taken_ms = answer->remotes[i].now_ms;
        remote->taken_of
            = answer->remotes[i].values[0]
              + (uint64_t)before * claim->cost * claim->policy->window_ms;

        describe_part(ask, answer, i, before, waiter->admitted, verdict);

        remote->own = answer->own[i];
        claim->limit = verdict->limit;
        claim->verdict = verdict;
        claim->outcome = Outcome::kAdmitted;

        if (!waiter->admitted && verdict->retry_after_ms) {
            claim->outcome = Outcome::kRejected;
            rejecting++;
        }
    }

    if (!waiter->admitted && rejecting == 0) {

        /* by a state of a time which the server's clock is yet to reach */

        remote = waiter->claims[0].remote;
        remote->verdict.retry_after_ms = 1;
        waiter->claims[0].outcome = Outcome::kRejected;
    }
}

/* The ask is in no queue: it is due again, or over. */

void ask_done(Redis *redis, Ask *ask)
{
    ask->in_call = 0;
    ask->hops = 0;
    ask->asking = 0;

    if (ask->units) {
        make_due(ask, redis->client.nodes.route(ask->slot));
        return;
    }

    if (ask->shared) {
        ngx_rbtree_delete(&redis->client.asks, &ask->node);
    }

    ngx_free(ask);
}

} // namespace limit_sliding
