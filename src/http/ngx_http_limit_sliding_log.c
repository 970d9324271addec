
/*
 * Copyright (C) the limit_sliding authors
 */


#include "ngx_http_limit_sliding.h"


/* Of a key too long, so many bytes are logged. */

#define NGX_HTTP_LIMIT_SLIDING_SHOWN  256


static u_char *ngx_http_limit_sliding_log_handler(ngx_http_request_t *r,
    ngx_http_request_t *sr, u_char *buf, size_t len);


/* For the log handler, which has no argument for it, during one line. */

static ngx_uint_t               ngx_http_limit_sliding_log_omitted;
static ngx_http_log_handler_pt  ngx_http_limit_sliding_next_log_handler;


void
ngx_http_limit_sliding_log_rejected(ngx_http_request_t *r,
    ngx_http_limit_sliding_conf_t *lscf, ngx_http_limit_sliding_ctx_t *ctx,
    limit_sliding_verdict_t *verdict)
{
    char                           *dry_run;
    ngx_http_limit_sliding_zone_t  *zone;

    if (lscf->log_level == 0) {
        return;
    }

    zone = ctx->described->data;

    if (lscf->log_every) {

        if ((ngx_msec_int_t) (zone->log_after - ngx_current_msec) > 0) {
            zone->log_omitted++;
            return;
        }

        zone->log_after = ngx_current_msec + lscf->log_every;
    }

    if (zone->log_omitted) {
        ngx_http_limit_sliding_log_omitted = zone->log_omitted;
        zone->log_omitted = 0;

        ngx_http_limit_sliding_next_log_handler = r->log_handler;
        r->log_handler = ngx_http_limit_sliding_log_handler;
    }

    dry_run = lscf->dry_run ? ", dry run" : "";

    if (ctx->described->outcome == LIMIT_SLIDING_REFUSED) {
        ngx_log_error(lscf->log_level, r->connection->log, 0,
                      "refusing new keys%s, zone \"%V\" is full",
                      dry_run, &zone->name);

    } else {
        ngx_log_error(lscf->log_level, r->connection->log, 0,
                      "limiting requests%s, excess: %uL.%03uL by zone \"%V\"",
                      dry_run, verdict->excess / 1000, verdict->excess % 1000,
                      &zone->name);
    }

    if (r->log_handler == ngx_http_limit_sliding_log_handler) {
        r->log_handler = ngx_http_limit_sliding_next_log_handler;
    }
}


/*
 * Puts the count right after the client, where it does not disturb filters
 * that expect the client to follow the zone.
 */

static u_char *
ngx_http_limit_sliding_log_handler(ngx_http_request_t *r,
    ngx_http_request_t *sr, u_char *buf, size_t len)
{
    u_char  *p;

    p = ngx_snprintf(buf, len, ", omitted: %ui",
                     ngx_http_limit_sliding_log_omitted);

    return ngx_http_limit_sliding_next_log_handler(r, sr, p, len - (p - buf));
}


/* limit_req's words, but for the key: a client's, it could forge lines. */

void
ngx_http_limit_sliding_log_long_key(ngx_http_request_t *r,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *key)
{
    u_char      text[4 * NGX_HTTP_LIMIT_SLIDING_SHOWN];
    u_char     *p, ch;
    ngx_uint_t  i;

    p = text;

    for (i = 0; i < NGX_HTTP_LIMIT_SLIDING_SHOWN; i++) {
        ch = key->data[i];

        if (ch < ' ' || ch > '~' || ch == '"' || ch == '\\') {
            p = ngx_sprintf(p, "\\x%02Xd", ch);

        } else {
            *p++ = ch;
        }
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "the value of the \"%V\" key "
                  "is more than 65535 bytes: \"%*s...\"",
                  &zone->key.value, p - text, text);
}
