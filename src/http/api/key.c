
/*
 * Copyright (C) the limit_sliding authors
 */


/* One key: what it has used, forgetting that, and a limit of its own. */


#include "http/api/api.h"


static ngx_int_t ngx_http_limit_sliding_key_arg(ngx_http_request_t *r,
    char *name, ngx_str_t *value);
static ngx_int_t ngx_http_limit_sliding_key_rate(
    ngx_http_limit_sliding_key_t *key);
static void ngx_http_limit_sliding_key_limit(
    ngx_http_limit_sliding_key_t *key);
static ngx_int_t ngx_http_limit_sliding_key_local(ngx_http_request_t *r,
    ngx_http_limit_sliding_key_t *key);
static void ngx_http_limit_sliding_key_look(
    ngx_http_limit_sliding_key_t *key);
static void ngx_http_limit_sliding_key_json(
    ngx_http_limit_sliding_text_t *text, ngx_http_limit_sliding_key_t *key);


ngx_int_t
ngx_http_limit_sliding_api_key(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone)
{
    limit_sliding_claim_t         *claim;
    ngx_http_limit_sliding_key_t  *key;

    key = ngx_pcalloc(r->pool, sizeof(ngx_http_limit_sliding_key_t));
    if (key == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    key->zone = zone;

    if (ngx_http_limit_sliding_key_arg(r, "key", &key->key) != NGX_OK) {
        return ngx_http_limit_sliding_api_error(r, NGX_HTTP_BAD_REQUEST,
                             "\"key\" must be given, and not be empty");
    }

    if (ngx_http_limit_sliding_read_key(r, zone, &key->key) != NGX_OK) {
        return ngx_http_limit_sliding_api_error(r, NGX_HTTP_BAD_REQUEST,
                             "\"key\" must be an address, as \"192.0.2.7\" "
                             "or \"2001:db8::1\"");
    }

    if (r->method == NGX_HTTP_PUT
        && (ngx_http_limit_sliding_key_arg(r, "rate", &key->rate) != NGX_OK
            || ngx_http_limit_sliding_key_rate(key) != NGX_OK))
    {
        return ngx_http_limit_sliding_api_error(r, NGX_HTTP_BAD_REQUEST,
                       "\"rate\" must be as \"10r/s\", of 1 to %uD requests "
                       "in a window of %uL ms, or \"off\", or \"default\"",
                       LIMIT_SLIDING_LIMIT_MAX, zone->policy.window_ms);
    }

    claim = &key->claim;

    claim->zone = zone->zone;
    claim->policy = &zone->policy;
    claim->counts = &zone->counters->slots;
    claim->look = 1;
    claim->hash = limit_sliding_zone_hash(zone->zone, key->key.data,
                                          key->key.len);

    ngx_http_limit_sliding_key_limit(key);

    if (zone->redis) {
        return ngx_http_limit_sliding_key_remote(r, key);
    }

    return ngx_http_limit_sliding_key_local(r, key);
}


/* As it was before it was encoded for the request line. */

static ngx_int_t
ngx_http_limit_sliding_key_arg(ngx_http_request_t *r, char *name,
    ngx_str_t *value)
{
    u_char     *p, *src, *dst, *last;
    ngx_str_t   arg;

    if (ngx_http_arg(r, (u_char *) name, ngx_strlen(name), &arg) != NGX_OK
        || arg.len == 0)
    {
        return NGX_DECLINED;
    }

    last = arg.data + arg.len;

    for (p = arg.data; p < last; p++) {
        if (*p == '%'
            && (last - p < 3 || ngx_hextoi(p + 1, 2) == NGX_ERROR))
        {
            return NGX_DECLINED;
        }
    }

    /* an address may take the place of its text */

    dst = ngx_pnalloc(r->pool, ngx_max(arg.len, 16));
    if (dst == NULL) {
        return NGX_ERROR;
    }

    value->data = dst;
    src = arg.data;

    ngx_unescape_uri(&dst, &src, arg.len, 0);

    value->len = dst - value->data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_key_rate(ngx_http_limit_sliding_key_t *key)
{
    ngx_str_t  *rate;

    rate = &key->rate;

    if (rate->len == 3 && ngx_strncmp(rate->data, "off", 3) == 0) {
        key->own = LIMIT_SLIDING_OWN_OFF;
        return NGX_OK;
    }

    if (rate->len == 7 && ngx_strncmp(rate->data, "default", 7) == 0) {
        key->own = LIMIT_SLIDING_OWN_NONE;
        return NGX_OK;
    }

    return ngx_http_limit_sliding_parse_rate(rate,
                                             key->zone->policy.window_ms,
                                             &key->own);
}


/*
 * The limit of a key that has none of its own: that of its last request, if a
 * variable said it, or the zone's.
 */

static void
ngx_http_limit_sliding_key_limit(ngx_http_limit_sliding_key_t *key)
{
    uint32_t  last;

    last = LIMIT_SLIDING_OWN_NONE;

    if (key->zone->variable) {
        last = limit_sliding_limit_cache_find(key->zone->aside.last,
                                              key->claim.hash);
    }

    if (last == LIMIT_SLIDING_OWN_NONE) {
        last = key->zone->limit;
    }

    key->unlimited = (last == LIMIT_SLIDING_OWN_NONE
                      || last == LIMIT_SLIDING_OWN_OFF);

    /* what a counter has used is the same whatever the limit */

    key->limit = key->unlimited ? LIMIT_SLIDING_LIMIT_MAX : last;
    key->claim.limit = key->limit;
}


static ngx_int_t
ngx_http_limit_sliding_key_local(ngx_http_request_t *r,
    ngx_http_limit_sliding_key_t *key)
{
    limit_sliding_aside_t  *aside;

    aside = &key->zone->aside;

    if (r->method == NGX_HTTP_PUT
        && !limit_sliding_own_set(aside->own, key->claim.hash, key->own))
    {
        return ngx_http_limit_sliding_api_error(r,
                                  NGX_HTTP_INSUFFICIENT_STORAGE,
                                  "no room for another limit of a key");
    }

    key->own = limit_sliding_own_find(aside->own, key->claim.hash);

    if (key->own != LIMIT_SLIDING_OWN_NONE
        && key->own != LIMIT_SLIDING_OWN_OFF)
    {
        key->claim.limit = key->own;
        key->unlimited = 0;
    }

    if (r->method == NGX_HTTP_DELETE) {
        ngx_http_limit_sliding_key_forget(key);
    }

    ngx_http_limit_sliding_key_look(key);

    return ngx_http_limit_sliding_key_send(r, key);
}


/* In this node's memory. */

void
ngx_http_limit_sliding_key_forget(ngx_http_limit_sliding_key_t *key)
{
    limit_sliding_forget(&key->claim, ngx_current_msec);

    limit_sliding_top_forget(key->zone->aside.top, key->claim.hash);
}


static void
ngx_http_limit_sliding_key_look(ngx_http_limit_sliding_key_t *key)
{
    (void) limit_sliding_acquire(&key->claim, 1, ngx_current_msec);

    limit_sliding_claim_describe(&key->claim, ngx_current_msec, &key->verdict);
}


ngx_int_t
ngx_http_limit_sliding_key_send(ngx_http_request_t *r,
    ngx_http_limit_sliding_key_t *key)
{
    ngx_http_limit_sliding_text_t  text;

    ngx_http_limit_sliding_text_init(&text, r->pool);

    ngx_http_limit_sliding_key_json(&text, key);

    return ngx_http_limit_sliding_api_send(r, NGX_HTTP_OK, "application/json",
                                           &text);
}


static void
ngx_http_limit_sliding_key_json(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_key_t *key)
{
    limit_sliding_claim_t    *claim;
    limit_sliding_verdict_t  *verdict;

    claim = &key->claim;
    verdict = &key->verdict;

    ngx_http_limit_sliding_print(text, "{\"zone\":");
    ngx_http_limit_sliding_print_json(text, &key->zone->name);
    ngx_http_limit_sliding_print(text, ",");
    ngx_http_limit_sliding_print_key(text, key->zone, &key->key);

    ngx_http_limit_sliding_print(text, ",\"own_limit\":%s",
                    key->own == LIMIT_SLIDING_OWN_NONE ? "false"
                    : key->own == LIMIT_SLIDING_OWN_OFF ? "\"off\"" : "true");

    if (!key->unlimited && key->own != LIMIT_SLIDING_OWN_OFF) {
        ngx_http_limit_sliding_print(text, ",\"limit\":%uD,"
                                     "\"remaining\":%uD",
                                     claim->limit, verdict->remaining);

    } else {
        ngx_http_limit_sliding_print(text, ",\"limit\":null,"
                                     "\"remaining\":null");
    }

    if (key->unlimited
        && (claim->policy->algorithm == LIMIT_SLIDING_TOKEN_BUCKET
            || claim->policy->algorithm == LIMIT_SLIDING_LEAKY_BUCKET))
    {
        /* a bucket fills at a rate that only a request knows */

        ngx_http_limit_sliding_print(text, ",\"used\":null,\"reset\":null,"
                                     "\"reset_ms\":null}\n");
        return;
    }

    ngx_http_limit_sliding_print(text, ",\"used\":%uL,\"reset\":%uL,"
                                 "\"reset_ms\":%uL}\n",
                                 limit_sliding_used(claim->policy,
                                                    verdict->limit, verdict),
                                 limit_sliding_seconds(verdict->reset_ms),
                                 verdict->reset_ms);
}
