
/*
 * Copyright (C) the limit_sliding authors
 */


#include "http/http.h"


/*
 * In Angie 1.12 and later, each value that follows the message of a line is a
 * property with a name, and request log handlers have another signature.
 */

#if (angie_version >= 1012000)
#define NGX_HTTP_LIMIT_SLIDING_LOG_PROPERTIES  1
typedef ngx_log_ext_handler_pt   ngx_http_limit_sliding_log_handler_pt;
#else
#define NGX_HTTP_LIMIT_SLIDING_LOG_PROPERTIES  0
typedef ngx_http_log_handler_pt  ngx_http_limit_sliding_log_handler_pt;
#endif


/* Of a value that a client may have sent, so many bytes are logged. */

#define NGX_HTTP_LIMIT_SLIDING_SHOWN  256


static ngx_uint_t ngx_http_limit_sliding_log_begin(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_zone_t *zone,
    ngx_uint_t level);
static void ngx_http_limit_sliding_log_end(ngx_http_request_t *r);
static size_t ngx_http_limit_sliding_escape(u_char *dst, ngx_str_t *value);
#if (NGX_HTTP_LIMIT_SLIDING_LOG_PROPERTIES)
static u_char *ngx_http_limit_sliding_log_handler(ngx_log_t *log, u_char *buf,
    u_char *last, void *data);
#else
static u_char *ngx_http_limit_sliding_log_handler(ngx_http_request_t *r,
    ngx_http_request_t *sr, u_char *buf, size_t len);
#endif


/* For the log handler, which has no argument for it, during one line. */

static ngx_uint_t  ngx_http_limit_sliding_log_omitted;
static ngx_http_limit_sliding_log_handler_pt
    ngx_http_limit_sliding_next_log_handler;


#if (NGX_HTTP_LIMIT_SLIDING_LOG_PROPERTIES)

static ngx_log_property_t  ngx_http_limit_sliding_omitted_property =
    ngx_log_prop_decl("omitted", "limit_sliding", NGX_LOG_PT_NUM);

#endif


/* Called before the configuration of http{} is read. */

ngx_int_t
ngx_http_limit_sliding_init_log(ngx_conf_t *cf)
{
#if (NGX_HTTP_LIMIT_SLIDING_LOG_PROPERTIES)
    return ngx_log_add_property(cf->cycle,
                                &ngx_http_limit_sliding_omitted_property);
#else
    return NGX_OK;
#endif
}


/* ctx->described is the claim that rejected the request. */

void
ngx_http_limit_sliding_log_rejected(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx)
{
    char                             *dry_run;
    limit_sliding_claim_t            *claim;
    limit_sliding_verdict_t           verdict;
    ngx_http_limit_sliding_zone_t    *zone;
    ngx_http_limit_sliding_limit_t   *limit;
    ngx_http_limit_sliding_remote_t  *remote;

    claim = ctx->described;
    limit = claim->data;
    zone = limit->zone;

    if (!ngx_http_limit_sliding_log_begin(r, lscf, zone, lscf->log_level)) {
        return;
    }

    dry_run = limit->dry_run ? ", dry run" : "";
    remote = claim->remote;

    if (claim->outcome == LIMIT_SLIDING_REFUSED) {
        ngx_log_error(lscf->log_level, r->connection->log, 0,
                      "refusing new keys%s, zone \"%V\" is full",
                      dry_run, &zone->name);

    } else if (remote && claim->verdict
               && remote->source == NGX_HTTP_LIMIT_SLIDING_FALLBACK)
    {
        /* no word of a limit: the client is not to blame */

        ngx_log_error(lscf->log_level, r->connection->log, 0,
                      "denying request%s, redis \"%V\" of zone \"%V\" "
                      "does not answer",
                      dry_run, &zone->redis->name, &zone->name);

    } else {
        limit_sliding_claim_describe(claim, ctx->now_ms, &verdict);

        ngx_log_error(lscf->log_level, r->connection->log, 0,
                      "limiting requests%s, excess: %uL.%03uL by zone \"%V\"",
                      dry_run, verdict.excess / 1000, verdict.excess % 1000,
                      &zone->name);
    }

    ngx_http_limit_sliding_log_end(r);
}


void
ngx_http_limit_sliding_log_delayed(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, limit_sliding_claim_t *claim,
    uint64_t now_ms)
{
    ngx_uint_t                       level;
    limit_sliding_verdict_t          verdict;
    ngx_http_limit_sliding_zone_t   *zone;
    ngx_http_limit_sliding_limit_t  *limit;

    limit = claim->data;
    zone = limit->zone;

    /* one level lower than rejections, as limit_req */

    level = ngx_min(lscf->log_level + 1, NGX_LOG_INFO);

    if (!ngx_http_limit_sliding_log_begin(r, lscf, zone, level)) {
        return;
    }

    limit_sliding_claim_describe(claim, now_ms, &verdict);

    ngx_log_error(level, r->connection->log, 0,
                  "delaying request%s, excess: %uL.%03uL, by zone \"%V\"",
                  limit->dry_run ? ", dry run" : "",
                  verdict.excess / 1000, verdict.excess % 1000,
                  &zone->name);

    ngx_http_limit_sliding_log_end(r);
}


/* 0: there is to be no line, now or at all. */

static ngx_uint_t
ngx_http_limit_sliding_log_begin(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_zone_t *zone,
    ngx_uint_t level)
{
    /* a line that error_log drops must not pass for the one of this time */

    if (lscf->log_level == 0 || r->connection->log->log_level < level) {
        return 0;
    }

    if (lscf->log_every) {

        if ((ngx_msec_int_t) (zone->log_after - ngx_current_msec) > 0) {
            zone->log_omitted++;
            return 0;
        }

        zone->log_after = ngx_current_msec + lscf->log_every;
    }

    if (zone->log_omitted) {
        ngx_http_limit_sliding_log_omitted = zone->log_omitted;
        zone->log_omitted = 0;

        ngx_http_limit_sliding_next_log_handler = r->log_handler;
        r->log_handler = ngx_http_limit_sliding_log_handler;
    }

    return 1;
}


static void
ngx_http_limit_sliding_log_end(ngx_http_request_t *r)
{
    if (r->log_handler == ngx_http_limit_sliding_log_handler) {
        r->log_handler = ngx_http_limit_sliding_next_log_handler;
    }
}


/*
 * Puts the count right after the client, where it does not disturb filters
 * that expect the client to follow the zone.
 */

#if (NGX_HTTP_LIMIT_SLIDING_LOG_PROPERTIES)

static u_char *
ngx_http_limit_sliding_log_handler(ngx_log_t *log, u_char *buf, u_char *last,
    void *data)
{
    u_char                  *p;
    ngx_log_property_key_t   key;

    key.id = ngx_http_limit_sliding_omitted_property.index;

    p = ngx_log_property(log, buf, last, key, "%ui",
                         ngx_http_limit_sliding_log_omitted);

    return ngx_http_limit_sliding_next_log_handler(log, p, last, data);
}

#else

static u_char *
ngx_http_limit_sliding_log_handler(ngx_http_request_t *r,
    ngx_http_request_t *sr, u_char *buf, size_t len)
{
    u_char  *p;

    p = ngx_snprintf(buf, len, ", omitted: %ui",
                     ngx_http_limit_sliding_log_omitted);

    return ngx_http_limit_sliding_next_log_handler(r, sr, p, len - (p - buf));
}

#endif


/* limit_req's words, but for the key. */

void
ngx_http_limit_sliding_log_long_key(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t key)
{
    size_t  len;
    u_char  text[4 * NGX_HTTP_LIMIT_SLIDING_SHOWN];

    ngx_http_limit_sliding_tally(zone, LIMIT_SLIDING_COUNT_ERRORS);

    len = ngx_http_limit_sliding_escape(text, &key);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "the value of the \"%V\" key "
                  "is more than 65535 bytes: \"%*s...\"",
                  &zone->key.complex.value, len, text);
}


/* `name` is "rate" or "cost". */

void
ngx_http_limit_sliding_log_bad_value(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone, char *name, ngx_str_t *value)
{
    size_t  len;
    u_char  text[4 * NGX_HTTP_LIMIT_SLIDING_SHOWN];

    ngx_http_limit_sliding_tally(zone, LIMIT_SLIDING_COUNT_ERRORS);

    len = ngx_http_limit_sliding_escape(text, value);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "invalid %s \"%*s%s\" of a request in zone \"%V\"",
                  name, len, text,
                  value->len > NGX_HTTP_LIMIT_SLIDING_SHOWN ? "..." : "",
                  &zone->name);
}


/* What a client has sent could forge lines, or fill the log. */

static size_t
ngx_http_limit_sliding_escape(u_char *dst, ngx_str_t *value)
{
    u_char  *p, *src, *last, ch;

    p = dst;
    src = value->data;
    last = src + ngx_min(value->len, NGX_HTTP_LIMIT_SLIDING_SHOWN);

    while (src < last) {
        ch = *src++;

        if (ch < ' ' || ch > '~' || ch == '"' || ch == '\\') {
            p = ngx_sprintf(p, "\\x%02Xd", ch);

        } else {
            *p++ = ch;
        }
    }

    return p - dst;
}
