
/*
 * Copyright (C) the limit_sliding authors
 */


/*
 * One key of a zone in Redis.  The request looks at it, which makes sure of a
 * connection, then gives its order, if it has one, and looks again.
 */


#include "http/api/api.h"


static ngx_int_t ngx_http_limit_sliding_key_ask(
    ngx_http_limit_sliding_key_t *key);
static void ngx_http_limit_sliding_key_cleanup(void *data);
static void ngx_http_limit_sliding_key_told_handler(ngx_event_t *ev);
static ngx_int_t ngx_http_limit_sliding_key_told(
    ngx_http_limit_sliding_key_t *key);
static ngx_int_t ngx_http_limit_sliding_key_order(
    ngx_http_limit_sliding_key_t *key);
static ngx_int_t ngx_http_limit_sliding_key_ordered(
    ngx_http_limit_sliding_key_t *key);
static void ngx_http_limit_sliding_key_believe_no_more(
    ngx_http_limit_sliding_key_t *key);
static ngx_int_t ngx_http_limit_sliding_key_unavailable(
    ngx_http_limit_sliding_key_t *key);


ngx_int_t
ngx_http_limit_sliding_key_remote(ngx_http_request_t *r,
    ngx_http_limit_sliding_key_t *key)
{
    ngx_http_cleanup_t  *cln;

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = ngx_http_limit_sliding_key_cleanup;
    cln->data = key;

    key->request = r;
    key->remote.zone = &key->zone->remote;
    key->remote.key = key->key;
    key->claim.remote = &key->remote;

    key->waiter.claims = &key->claim;
    key->waiter.event.handler = ngx_http_limit_sliding_key_told_handler;
    key->waiter.event.data = key;
    key->waiter.event.log = ngx_cycle->log;

    if (ngx_http_limit_sliding_key_ask(key) != NGX_OK) {
        return ngx_http_limit_sliding_key_unavailable(key);
    }

    r->main->count++;

    if (!r->discard_body) {
        r->read_event_handler = ngx_http_test_reading;
    }

    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_DONE;
}


static ngx_int_t
ngx_http_limit_sliding_key_ask(ngx_http_limit_sliding_key_t *key)
{
    limit_sliding_claim_t  *claim;

    claim = &key->claim;

    claim->limit = key->limit;
    claim->verdict = NULL;

    return ngx_http_limit_sliding_ask(key->zone->redis, claim, 1,
                                      &key->waiter);
}


static void
ngx_http_limit_sliding_key_cleanup(void *data)
{
    ngx_http_limit_sliding_key_t  *key = data;

    ngx_http_limit_sliding_leave(&key->waiter);
}


/* Posted.  Nothing of the request may be touched once it is finalized. */

static void
ngx_http_limit_sliding_key_told_handler(ngx_event_t *ev)
{
    ngx_http_limit_sliding_key_t  *key = ev->data;

    ngx_int_t            rc;
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = key->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    rc = key->order ? ngx_http_limit_sliding_key_ordered(key)
                    : ngx_http_limit_sliding_key_told(key);

    if (rc != NGX_AGAIN) {
        ngx_http_finalize_request(r, rc);
    }

    ngx_http_run_posted_requests(c);
}


/* NGX_AGAIN: it goes on to wait. */

static ngx_int_t
ngx_http_limit_sliding_key_told(ngx_http_limit_sliding_key_t *key)
{
    if (key->waiter.told == NGX_HTTP_LIMIT_SLIDING_FAILED) {
        return ngx_http_limit_sliding_key_unavailable(key);
    }

    if (!key->ordered
        && (key->request->method & (NGX_HTTP_PUT|NGX_HTTP_DELETE)))
    {
        return ngx_http_limit_sliding_key_order(key);
    }

    key->verdict = key->remote.verdict;
    key->own = key->remote.own;

    if (key->own != LIMIT_SLIDING_OWN_NONE) {
        key->unlimited = 0;
    }

    return ngx_http_limit_sliding_key_send(key->request, key);
}


static ngx_int_t
ngx_http_limit_sliding_key_order(ngx_http_limit_sliding_key_t *key)
{
    key->order = (key->request->method == NGX_HTTP_DELETE)
                 ? NGX_HTTP_LIMIT_SLIDING_FORGET
                 : (key->own == LIMIT_SLIDING_OWN_NONE)
                 ? NGX_HTTP_LIMIT_SLIDING_UNSET_LIMIT
                 : NGX_HTTP_LIMIT_SLIDING_SET_LIMIT;

    if (ngx_http_limit_sliding_order(&key->claim, key->order, &key->rate,
                                     &key->waiter)
        != NGX_OK)
    {
        return ngx_http_limit_sliding_key_unavailable(key);
    }

    key->ordered = 1;

    return NGX_AGAIN;
}


static ngx_int_t
ngx_http_limit_sliding_key_ordered(ngx_http_limit_sliding_key_t *key)
{
    key->order = NGX_HTTP_LIMIT_SLIDING_NO_ORDER;

    if (key->waiter.told == NGX_HTTP_LIMIT_SLIDING_FAILED
        || !key->waiter.admitted)
    {
        return ngx_http_limit_sliding_api_error(key->request,
                                         NGX_HTTP_BAD_GATEWAY,
                                         "redis did not do it, see the log");
    }

    if (key->request->method == NGX_HTTP_DELETE) {
        ngx_http_limit_sliding_key_forget(key);

    } else {
        limit_sliding_limit_cache_set(key->zone->aside.told, key->claim.hash,
                                      key->own);
    }

    ngx_http_limit_sliding_key_believe_no_more(key);

    if (ngx_http_limit_sliding_key_ask(key) != NGX_OK) {
        return ngx_http_limit_sliding_key_unavailable(key);
    }

    return NGX_AGAIN;
}


/*
 * What this node has of the key from before the order.  Other nodes find out
 * when they ask Redis, within a second.
 */

static void
ngx_http_limit_sliding_key_believe_no_more(ngx_http_limit_sliding_key_t *key)
{
    ngx_http_limit_sliding_remote_zone_t  *zone;

    zone = &key->zone->remote;

    limit_sliding_refusals_forget(zone->refusals, &key->claim);

    if (zone->leases) {
        limit_sliding_leases_forget(zone->leases, &key->claim,
                                    ngx_current_msec);
    }
}


static ngx_int_t
ngx_http_limit_sliding_key_unavailable(ngx_http_limit_sliding_key_t *key)
{
    return ngx_http_limit_sliding_api_error(key->request,
                                            NGX_HTTP_SERVICE_UNAVAILABLE,
                                            "redis does not answer");
}
