
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * One key of a zone in Redis.  The request looks at it, which makes sure of a
 * connection, then gives its order, if it has one, and looks again.
 */

#include "http/api/key_in_redis.hpp"

#include "http/api/key.hpp"
#include "http/api/response.hpp"

namespace limit_sliding {

static ngx_int_t key_ask(KeyRequest *key);
static void key_cleanup(void *data);
static void key_told_handler(ngx_event_t *ev);
static ngx_int_t key_told(KeyRequest *key);
static ngx_int_t key_order(KeyRequest *key);
static ngx_int_t key_ordered(KeyRequest *key);
static void key_believe_no_more(KeyRequest *key);
static ngx_int_t key_unavailable(KeyRequest *key);

ngx_int_t key_remote(ngx_http_request_t *r, KeyRequest *key)
{
    ngx_http_cleanup_t *cln;

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = key_cleanup;
    cln->data = key;

    key->request = r;
    key->remote.zone = &key->zone->remote;
    key->remote.key = key->key;
    key->claim.remote = &key->remote;

    key->waiter.claims = &key->claim;
    key->waiter.event.handler = key_told_handler;
    key->waiter.event.data = key;
    key->waiter.event.log = ngx_cycle->log;

    if (key_ask(key) != NGX_OK) {
        return key_unavailable(key);
    }

    r->main->count++;

    if (!r->discard_body) {
        r->read_event_handler = ngx_http_test_reading;
    }

    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_DONE;
}

static ngx_int_t key_ask(KeyRequest *key)
{
    Claim *claim;

    claim = &key->claim;

    claim->limit = key->limit;
    claim->verdict = NULL;

    return ask_redis(key->zone->redis, claim, 1, &key->waiter);
}

static void key_cleanup(void *data)
{
    KeyRequest *key = data;

    leave_ask(&key->waiter);
}

/* Posted.  Nothing of the request may be touched once it is finalized. */

static void key_told_handler(ngx_event_t *ev)
{
    KeyRequest *key = ev->data;

    ngx_int_t rc;
    ngx_connection_t *c;
    ngx_http_request_t *r;

    r = key->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    rc = key->order != KeyCommand::kNone ? key_ordered(key) : key_told(key);

    if (rc != NGX_AGAIN) {
        ngx_http_finalize_request(r, rc);
    }

    ngx_http_run_posted_requests(c);
}

/* NGX_AGAIN: it goes on to wait. */

static ngx_int_t key_told(KeyRequest *key)
{
    if (key->waiter.told == Told::kFailed) {
        return key_unavailable(key);
    }

    if (!key->ordered
        && (key->request->method & (NGX_HTTP_PUT | NGX_HTTP_DELETE))) {
        return key_order(key);
    }

    key->verdict = key->remote.verdict;
    key->own = key->remote.own;

    if (key->own != kOwnNone) {
        key->unlimited = 0;
    }

    return key_send(key->request, key);
}

static ngx_int_t key_order(KeyRequest *key)
{
    key->order = (key->request->method == NGX_HTTP_DELETE) ? KeyCommand::kForget
                 : (key->own == kOwnNone) ? KeyCommand::kUnsetLimit
                                          : KeyCommand::kSetLimit;

    if (send_key_command(&key->claim, key->order, &key->rate, &key->waiter)
        != NGX_OK) {
        return key_unavailable(key);
    }

    key->ordered = 1;

    return NGX_AGAIN;
}

static ngx_int_t key_ordered(KeyRequest *key)
{
    key->order = KeyCommand::kNone;

    if (key->waiter.told == Told::kFailed || !key->waiter.admitted) {
        return api_error(key->request, NGX_HTTP_BAD_GATEWAY,
                         "redis did not do it, see the log");
    }

    if (key->request->method == NGX_HTTP_DELETE) {
        key_forget(key);

    } else {
        limit_sliding::limit_cache_set(key->zone->memory.aside.told,
                                       key->claim.hash, key->own);
    }

    key_believe_no_more(key);

    if (key_ask(key) != NGX_OK) {
        return key_unavailable(key);
    }

    return NGX_AGAIN;
}

/*
 * What this node has of the key from before the order.  Other nodes find out
 * when they ask Redis, within a second.
 */

static void key_believe_no_more(KeyRequest *key)
{
    RemoteZone *zone;

    zone = &key->zone->remote;

    limit_sliding::refusals_forget(zone->refusals, &key->claim);

    if (zone->leases) {
        limit_sliding::leases_forget(zone->leases, &key->claim,
                                     ngx_current_msec);
    }
}

static ngx_int_t key_unavailable(KeyRequest *key)
{
    return api_error(key->request, NGX_HTTP_SERVICE_UNAVAILABLE,
                     "redis does not answer");
}

} // namespace limit_sliding
