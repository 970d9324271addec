
/*
 * Copyright (C) the limit_sliding authors
 */

/* One key: what it has used, forgetting that, and a limit of its own. */

#include "http/api/key.hpp"

#include "http/api/key_in_redis.hpp"
#include "http/api/key_text.hpp"
#include "http/api/response.hpp"
#include "http/api/writer.hpp"
#include "http/rate.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static ngx_int_t key_arg(ngx_http_request_t *r, char *name, ngx_str_t *value);
static ngx_int_t key_rate(KeyRequest *key);
static void key_limit(KeyRequest *key);
static ngx_int_t key_local(ngx_http_request_t *r, KeyRequest *key);
static void key_look(KeyRequest *key);
static void key_json(Writer *text, KeyRequest *key);

ngx_int_t api_key(ngx_http_request_t *r, ZoneConf *zone)
{
    Claim *claim;
    KeyRequest *key;

    key = ngx_pcalloc(r->pool, sizeof(KeyRequest));
    if (key == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    key->zone = zone;

    if (key_arg(r, "key", &key->key) != NGX_OK) {
        return api_error(r, NGX_HTTP_BAD_REQUEST,
                         "\"key\" must be given, and not be empty");
    }

    if (read_key(r, zone, &key->key) != NGX_OK) {
        return api_error(r, NGX_HTTP_BAD_REQUEST,
                         "\"key\" must be an address, as \"192.0.2.7\" "
                         "or \"2001:db8::1\"");
    }

    if (r->method == NGX_HTTP_PUT
        && (key_arg(r, "rate", &key->rate) != NGX_OK
            || key_rate(key) != NGX_OK)) {
        return api_error(r, NGX_HTTP_BAD_REQUEST,
                         "\"rate\" must be as \"10r/s\", of 1 to %uD requests "
                         "in a window of %uL ms, or \"off\", or \"default\"",
                         kLimitMax, zone->policy.window_ms);
    }

    claim = &key->claim;

    claim->zone = zone->memory.table;
    claim->policy = &zone->policy;
    claim->counts = &zone->worker.counters->slots;
    claim->look = 1;
    claim->hash = limit_sliding::zone_hash(zone->memory.table, key->key.data,
                                           key->key.len);

    key_limit(key);

    if (zone->redis) {
        return key_remote(r, key);
    }

    return key_local(r, key);
}

/* As it was before it was encoded for the request line. */

static ngx_int_t key_arg(ngx_http_request_t *r, char *name, ngx_str_t *value)
{
    u_char *p, *src, *dst, *last;
    ngx_str_t arg;

    if (ngx_http_arg(r, (u_char *)name, ngx_strlen(name), &arg) != NGX_OK
        || arg.len == 0) {
        return NGX_DECLINED;
    }

    last = arg.data + arg.len;

    for (p = arg.data; p < last; p++) {
        if (*p == '%' && (last - p < 3 || ngx_hextoi(p + 1, 2) == NGX_ERROR)) {
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

static ngx_int_t key_rate(KeyRequest *key)
{
    ngx_str_t *rate;

    rate = &key->rate;

    if (rate->len == 3 && ngx_strncmp(rate->data, "off", 3) == 0) {
        key->own = kOwnOff;
        return NGX_OK;
    }

    if (rate->len == 7 && ngx_strncmp(rate->data, "default", 7) == 0) {
        key->own = kOwnNone;
        return NGX_OK;
    }

    return parse_rate(rate, key->zone->policy.window_ms, &key->own);
}

/*
 * The limit of a key that has none of its own: that of its last request, if a
 * variable said it, or the zone's.
 */

static void key_limit(KeyRequest *key)
{
    uint32_t last;

    last = kOwnNone;

    if (key->zone->variable) {
        last = limit_sliding::limit_cache_find(key->zone->memory.aside.last,
                                               key->claim.hash);
    }

    if (last == kOwnNone) {
        last = key->zone->limit;
    }

    key->unlimited = (last == kOwnNone || last == kOwnOff);

    /* what a counter has used is the same whatever the limit */

    key->limit = key->unlimited ? kLimitMax : last;
    key->claim.limit = key->limit;
}

static ngx_int_t key_local(ngx_http_request_t *r, KeyRequest *key)
{
    Aside *aside;

    aside = &key->zone->memory.aside;

    if (r->method == NGX_HTTP_PUT
        && !limit_sliding::own_set(aside->own, key->claim.hash, key->own)) {
        return api_error(r, NGX_HTTP_INSUFFICIENT_STORAGE,
                         "no room for another limit of a key");
    }

    key->own = limit_sliding::own_find(aside->own, key->claim.hash);

    if (key->own != kOwnNone && key->own != kOwnOff) {
        key->claim.limit = key->own;
        key->unlimited = 0;
    }

    if (r->method == NGX_HTTP_DELETE) {
        key_forget(key);
    }

    key_look(key);

    return key_send(r, key);
}

/* In this node's memory. */

void key_forget(KeyRequest *key)
{
    limit_sliding::forget(&key->claim, ngx_current_msec);

    limit_sliding::top_forget(key->zone->memory.aside.top, key->claim.hash);
}

static void key_look(KeyRequest *key)
{
    (void)limit_sliding::acquire(&key->claim, 1, ngx_current_msec);

    limit_sliding::claim_describe(&key->claim, ngx_current_msec, &key->verdict);
}

ngx_int_t key_send(ngx_http_request_t *r, KeyRequest *key)
{
    Writer text;

    text_init(&text, r->pool);

    key_json(&text, key);

    return api_send(r, NGX_HTTP_OK, "application/json", &text);
}

static void key_json(Writer *text, KeyRequest *key)
{
    Claim *claim;
    Verdict *verdict;

    claim = &key->claim;
    verdict = &key->verdict;

    print(text, "{\"zone\":");
    print_json(text, &key->zone->name);
    print(text, ",");
    print_key(text, key->zone, &key->key);

    print(text, ",\"own_limit\":%s",
          key->own == kOwnNone  ? "false"
          : key->own == kOwnOff ? "\"off\""
                                : "true");

    if (!key->unlimited && key->own != kOwnOff) {
        print(text,
              ",\"limit\":%uD,"
              "\"remaining\":%uD",
              claim->limit, verdict->remaining);

    } else {
        print(text, ",\"limit\":null,"
                    "\"remaining\":null");
    }

    if (key->unlimited
        && (claim->policy->algorithm == Algorithm::kTokenBucket
            || claim->policy->algorithm == Algorithm::kLeakyBucket)) {
        /* a bucket fills at a rate that only a request knows */

        print(text, ",\"used\":null,\"reset\":null,"
                    "\"reset_ms\":null}\n");
        return;
    }

    print(text,
          ",\"used\":%uL,\"reset\":%uL,"
          "\"reset_ms\":%uL}\n",
          limit_sliding::used(claim->policy, verdict->limit, verdict),
          limit_sliding::seconds(verdict->reset_ms), verdict->reset_ms);
}

} // namespace limit_sliding
