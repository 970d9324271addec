
/*
 * Copyright (C) the limit_sliding authors
 */

/* count_status: limits that are consumed on the way out. */

#include "http/count_status.hpp"

#include "http/context.hpp"
#include "http/limit_set.hpp"
#include "http/parameter.hpp"

namespace limit_sliding {

static ngx_int_t parse_statuses(ngx_str_t *text, StatusRange *statuses);
static ngx_uint_t is_counted(ngx_array_t *statuses, ngx_uint_t status);

/* "count_status=401,5xx" */

char *count_status(ngx_conf_t *cf, Limit *limit, Param *param)
{
    u_char *p, *last;
    ngx_str_t text;
    StatusRange *statuses;

    if (param->word.len == 0) {
        return NGX_CONF_OK;
    }

    limit->count_status = ngx_array_create(cf->pool, 2, sizeof(StatusRange));
    if (limit->count_status == NULL) {
        return NGX_CONF_ERROR;
    }

    last = param->value.data + param->value.len;

    for (p = param->value.data; p <= last; p = text.data + text.len + 1) {
        text.data = p;
        p = ngx_strlchr(p, last, ',');
        text.len = (p ? p : last) - text.data;

        statuses = ngx_array_push(limit->count_status);
        if (statuses == NULL) {
            return NGX_CONF_ERROR;
        }

        if (parse_statuses(&text, statuses) != NGX_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid status \"%V\" in \"%V\", it must be "
                               "between 100 and 599, or as \"4xx\"",
                               &text, &param->word);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}

static ngx_int_t parse_statuses(ngx_str_t *text, StatusRange *statuses)
{
    ngx_int_t n;

    if (text->len != 3 || text->data[0] < '1' || text->data[0] > '5') {
        return NGX_ERROR;
    }

    if (text->data[1] == 'x' && text->data[2] == 'x') {
        statuses->from = (text->data[0] - '0') * 100;
        statuses->to = statuses->from + 99;
        return NGX_OK;
    }

    n = ngx_atoi(text->data, text->len);

    if (n == NGX_ERROR) {
        return NGX_ERROR;
    }

    statuses->from = n;
    statuses->to = n;

    return NGX_OK;
}

/*
 * In the log phase, if any limit counts by status.  The request is over, so
 * whether the limit has room for it still makes no difference.
 */

ngx_int_t count_handler(ngx_http_request_t *r)
{
    ngx_uint_t i, status;
    Claim claim;
    Context *ctx;
    Limit *limit;
    RemoteClaim *remote;

    if (r != r->main) {
        return NGX_OK;
    }

    ctx = get_ctx(r);

    if (ctx == NULL || ctx->status == Status::kRejected) {
        return NGX_OK;
    }

    /* as $status */

    status = r->err_status ? r->err_status : r->headers_out.status;

    for (i = 0; i < ctx->nclaims; i++) {
        claim = ctx->claims[i];
        limit = claim.data;

        if (limit->count_status == NULL
            || !is_counted(limit->count_status, status)) {
            continue;
        }

        if (limit->dry_run && ctx->status == Status::kRejectedDryRun) {
            /* what the watched limits would have rejected */
            continue;
        }

        claim.look = 0;

        claim.verdict = NULL;

        remote = claim.remote;

        if (remote == NULL || remote->own != kOwnOff) {
            (void)limit_sliding::acquire(&claim, 1, ngx_current_msec);
        }

        if (remote) {
            /* nobody waits for it */
            (void)ask_redis(remote->zone->redis, &claim, 1, NULL);
        }
    }

    return NGX_OK;
}

static ngx_uint_t is_counted(ngx_array_t *statuses, ngx_uint_t status)
{
    ngx_uint_t i;
    StatusRange *s;

    s = statuses->elts;

    for (i = 0; i < statuses->nelts; i++) {
        if (status >= s[i].from && status <= s[i].to) {
            return 1;
        }
    }

    return 0;
}

} // namespace limit_sliding
