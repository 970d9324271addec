
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/log.hpp"

#include "http/configuration.hpp"
#include "http/context.hpp"
#include "http/limit_set.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

/*
 * In Angie 1.12 and later, each value that follows the message of a line is a
 * property with a name, and request log handlers have another signature.
 */

#if (angie_version >= 1012000)
constexpr auto kLogProperties = 1;
typedef ngx_log_ext_handler_pt LogHandler;
#else
constexpr auto kLogProperties = 0;
typedef ngx_http_log_handler_pt LogHandler;
#endif

/* Of a value that a client may have sent, so many bytes are logged. */

constexpr auto kShown = 256;

static ngx_uint_t log_begin(ngx_http_request_t *r, LocConf *lscf,
                            ZoneConf *zone, ngx_uint_t level);
static void log_end(ngx_http_request_t *r);
static size_t escape(u_char *dst, ngx_str_t *value);
#if (kLogProperties)
static u_char *log_handler(ngx_log_t *log, u_char *buf, u_char *last,
                           void *data);
#else
static u_char *log_handler(ngx_http_request_t *r, ngx_http_request_t *sr,
                           u_char *buf, size_t len);
#endif

/* For the log handler, which has no argument for it, during one line. */

static ngx_uint_t log_omitted;
static LogHandler next_log_handler;

#if (kLogProperties)

static ngx_log_property_t omitted_property
    = ngx_log_prop_decl("omitted", "limit_sliding", NGX_LOG_PT_NUM);

#endif

/* Called before the configuration of http{} is read. */

ngx_int_t init_log(ngx_conf_t *cf)
{
#if (kLogProperties)
    return ngx_log_add_property(cf->cycle, &omitted_property);
#else
    return NGX_OK;
#endif
}

/* ctx->described is the claim that rejected the request. */

void log_rejected(ngx_http_request_t *r, LocConf *lscf, Context *ctx)
{
    char *dry_run;
    Claim *claim;
    Verdict verdict;
    ZoneConf *zone;
    Limit *limit;
    RemoteClaim *remote;

    claim = ctx->described;
    limit = claim->data;
    zone = limit->zone;

    if (!log_begin(r, lscf, zone, lscf->log_level)) {
        return;
    }

    dry_run = limit->dry_run ? ", dry run" : "";
    remote = claim->remote;

    if (claim->outcome == Outcome::kRefused) {
        ngx_log_error(lscf->log_level, r->connection->log, 0,
                      "refusing new keys%s, zone \"%V\" is full", dry_run,
                      &zone->name);

    } else if (remote && claim->verdict
               && remote->source == Source::kFallback) {
        /* no word of a limit: the client is not to blame */

        ngx_log_error(lscf->log_level, r->connection->log, 0,
                      "denying request%s, redis \"%V\" of zone \"%V\" "
                      "does not answer",
                      dry_run, &zone->redis->settings.name, &zone->name);

    } else {
        limit_sliding::claim_describe(claim, ctx->now_ms, &verdict);

        ngx_log_error(lscf->log_level, r->connection->log, 0,
                      "limiting requests%s, excess: %uL.%03uL by zone \"%V\"",
                      dry_run, verdict.excess / 1000, verdict.excess % 1000,
                      &zone->name);
    }

    log_end(r);
}

void log_delayed(ngx_http_request_t *r, LocConf *lscf, Claim *claim,
                 uint64_t now_ms)
{
    ngx_uint_t level;
    Verdict verdict;
    ZoneConf *zone;
    Limit *limit;

    limit = claim->data;
    zone = limit->zone;

    /* one level lower than rejections, as limit_req */

    level = ngx_min(lscf->log_level + 1, NGX_LOG_INFO);

    if (!log_begin(r, lscf, zone, level)) {
        return;
    }

    limit_sliding::claim_describe(claim, now_ms, &verdict);

    ngx_log_error(level, r->connection->log, 0,
                  "delaying request%s, excess: %uL.%03uL, by zone \"%V\"",
                  limit->dry_run ? ", dry run" : "", verdict.excess / 1000,
                  verdict.excess % 1000, &zone->name);

    log_end(r);
}

/* 0: there is to be no line, now or at all. */

static ngx_uint_t log_begin(ngx_http_request_t *r, LocConf *lscf,
                            ZoneConf *zone, ngx_uint_t level)
{
    /* a line that error_log drops must not pass for the one of this time */

    if (lscf->log_level == 0 || r->connection->log->log_level < level) {
        return 0;
    }

    if (lscf->log_every) {

        if ((ngx_msec_int_t)(zone->worker.log_after - ngx_current_msec) > 0) {
            zone->worker.log_omitted++;
            return 0;
        }

        zone->worker.log_after = ngx_current_msec + lscf->log_every;
    }

    if (zone->worker.log_omitted) {
        log_omitted = zone->worker.log_omitted;
        zone->worker.log_omitted = 0;

        next_log_handler = r->log_handler;
        r->log_handler = log_handler;
    }

    return 1;
}

static void log_end(ngx_http_request_t *r)
{
    if (r->log_handler == log_handler) {
        r->log_handler = next_log_handler;
    }
}

/*
 * Puts the count right after the client, where it does not disturb filters
 * that expect the client to follow the zone.
 */

#if (kLogProperties)

static u_char *log_handler(ngx_log_t *log, u_char *buf, u_char *last,
                           void *data)
{
    u_char *p;
    ngx_log_property_key_t key;

    key.id = omitted_property.index;

    p = ngx_log_property(log, buf, last, key, "%ui", log_omitted);

    return next_log_handler(log, p, last, data);
}

#else

static u_char *log_handler(ngx_http_request_t *r, ngx_http_request_t *sr,
                           u_char *buf, size_t len)
{
    u_char *p;

    p = ngx_snprintf(buf, len, ", omitted: %ui", log_omitted);

    return next_log_handler(r, sr, p, len - (p - buf));
}

#endif

/* limit_req's words, but for the key. */

void log_long_key(ngx_http_request_t *r, ZoneConf *zone, ngx_str_t key)
{
    size_t len;
    u_char text[4 * kShown];

    tally(zone, kCountErrors);

    len = escape(text, &key);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "the value of the \"%V\" key "
                  "is more than 65535 bytes: \"%*s...\"",
                  &zone->key.complex.value, len, text);
}

/* `name` is "rate" or "cost". */

void log_bad_value(ngx_http_request_t *r, ZoneConf *zone, char *name,
                   ngx_str_t *value)
{
    size_t len;
    u_char text[4 * kShown];

    tally(zone, kCountErrors);

    len = escape(text, value);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "invalid %s \"%*s%s\" of a request in zone \"%V\"", name, len,
                  text, value->len > kShown ? "..." : "", &zone->name);
}

/* What a client has sent could forge lines, or fill the log. */

static size_t escape(u_char *dst, ngx_str_t *value)
{
    u_char *p, *src, *last, ch;

    p = dst;
    src = value->data;
    last = src + ngx_min(value->len, kShown);

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

} // namespace limit_sliding
