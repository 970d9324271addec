
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/configuration.hpp"
#include "http/count_status.hpp"
#include "http/expression.hpp"
#include "http/limit_set.hpp"
#include "http/module.hpp"
#include "http/parameter.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static char *parse_off(ngx_conf_t *cf, LocConf *lscf);
static Limit *add_limit(ngx_conf_t *cf, LocConf *lscf, Param *param);
static LimitSet *add_set(ngx_conf_t *cf);
static char *parse_cost(ngx_conf_t *cf, Limit *limit, Param *param);
static void check_cost(ngx_conf_t *cf, Param *param);
static ngx_uint_t is_of_response(ngx_str_t *name);

/*
 * Variables that have no final value before the response.  A name that ends
 * with "_" stands for all that begin with it.
 */

static ngx_str_t response_variables[]
    = {ngx_string("bytes_sent"),    ngx_string("body_bytes_sent"),
       ngx_string("gzip_ratio"),    ngx_string("request_completion"),
       ngx_string("request_time"),  ngx_string("sent_http_"),
       ngx_string("sent_trailer_"), ngx_string("status"),
       ngx_string("upstream_"),     ngx_null_string};

extern "C" char *ngx_http_limit_sliding(ngx_conf_t *cf, ngx_command_t *cmd,
                                        void *conf)
{
    LocConf *lscf = conf;

    ngx_str_t *value;
    ngx_uint_t i;
    Limit *limit;
    MainConf *lsmcf;

    enum { ZONE, RATE, COST, COUNT_STATUS, AFTER_AUTH, DRY_RUN };

    Param params[]
        = {{ngx_string("zone="), ngx_null_string, ngx_null_string},
           {ngx_string("rate="), ngx_null_string, ngx_null_string},
           {ngx_string("cost="), ngx_null_string, ngx_null_string},
           {ngx_string("count_status="), ngx_null_string, ngx_null_string},
           {ngx_string("after_auth"), ngx_null_string, ngx_null_string},
           {ngx_string("dry_run"), ngx_null_string, ngx_null_string},
           {ngx_null_string, ngx_null_string, ngx_null_string}};

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        return parse_off(cf, lscf);
    }

    for (i = 1; i < cf->args->nelts; i++) {
        if (lscf->set == NULL || ngx_strcmp(value[i].data, "off") == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"off\" of limit_sliding stands alone, it "
                               "cannot be combined with \"%V\"",
                               &value[i == 1 && lscf->set ? 2 : 1]);
            return NGX_CONF_ERROR;
        }
    }

    if (parse_params(cf, 1, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (params[ZONE].word.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter", &cmd->name);
        return NGX_CONF_ERROR;
    }

    limit = add_limit(cf, lscf, &params[ZONE]);
    if (limit == NULL) {
        return NGX_CONF_ERROR;
    }

    if (params[RATE].word.len) {
        limit->rate_word = params[RATE].word;

        if (rate_value(cf, &params[RATE], &limit->rates[0], &limit->rate)
            != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }

    if (parse_cost(cf, limit, &params[COST]) != NGX_CONF_OK
        || count_status(cf, limit, &params[COUNT_STATUS]) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    limit->after_auth = (params[AFTER_AUTH].word.len != 0);
    limit->dry_run = (params[DRY_RUN].word.len != 0);

    lsmcf
        = ngx_http_conf_get_module_main_conf(cf, ngx_http_limit_sliding_module);

    lsmcf->after_auth |= limit->after_auth;
    lsmcf->count_status |= (limit->count_status != NULL);

    return NGX_CONF_OK;
}

static char *parse_off(ngx_conf_t *cf, LocConf *lscf)
{
    if (lscf->set == NULL) {
        return "\"off\" is duplicate";
    }

    if (lscf->set != NGX_CONF_UNSET_PTR) {
        return "\"off\" stands alone, it cannot be combined with a zone";
    }

    lscf->set = NULL;

    return NGX_CONF_OK;
}

/* The plain limit of a zone. */

static Limit *add_limit(ngx_conf_t *cf, LocConf *lscf, Param *param)
{
    ngx_uint_t i;
    ZoneConf *zone;
    Limit *limit;

    zone = get_zone(cf, &param->value);
    if (zone == NULL) {
        return NULL;
    }

    if (lscf->set == NGX_CONF_UNSET_PTR) {
        lscf->set = add_set(cf);
        if (lscf->set == NULL) {
            return NULL;
        }
    }

    limit = lscf->set->limits.elts;

    for (i = 0; i < lscf->set->limits.nelts; i++) {
        if (limit[i].zone == zone) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "duplicate limit \"%V\"",
                               &param->word);
            return NULL;
        }
    }

    limit = ngx_array_push(&lscf->set->limits);
    if (limit == NULL) {
        return NULL;
    }

    ngx_memzero(limit, sizeof(Limit));

    limit->zone = zone;
    limit->cost = 1;
    limit->file = cf->conf_file->file.name.data;
    limit->line = cf->conf_file->line;

    return limit;
}

static LimitSet *add_set(ngx_conf_t *cf)
{
    LimitSet *set, **sets;
    MainConf *lsmcf;

    lsmcf
        = ngx_http_conf_get_module_main_conf(cf, ngx_http_limit_sliding_module);

    set = ngx_pcalloc(cf->pool, sizeof(LimitSet));
    if (set == NULL) {
        return NULL;
    }

    if (ngx_array_init(&set->limits, cf->pool, 2, sizeof(Limit)) != NGX_OK) {
        return NULL;
    }

    sets = ngx_array_push(&lsmcf->sets);
    if (sets == NULL) {
        return NULL;
    }

    *sets = set;

    return set;
}

static char *parse_cost(ngx_conf_t *cf, Limit *limit, Param *param)
{
    ngx_int_t cost;

    if (param->word.len == 0) {
        return NGX_CONF_OK;
    }

    if (ngx_http_script_variables_count(&param->value)) {
        limit->cost_value = ngx_palloc(cf->pool, sizeof(Expression));
        if (limit->cost_value == NULL) {
            return NGX_CONF_ERROR;
        }

        if (compile_expression(cf, &param->value, limit->cost_value)
            != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }

        check_cost(cf, param);

        return NGX_CONF_OK;
    }

    cost = ngx_atoi(param->value.data, param->value.len);

    if (cost == NGX_ERROR || cost > (ngx_int_t)NGX_MAX_UINT32_VALUE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid cost \"%V\", it must be between 0 and %uD "
                           "or hold a variable",
                           &param->word, NGX_MAX_UINT32_VALUE);
        return NGX_CONF_ERROR;
    }

    limit->cost = (uint32_t)cost;

    return NGX_CONF_OK;
}

/*
 * Warns of a cost that tells of the response: it is evaluated on the way in,
 * with "count_status=" as well, and would silently count as something else.
 */

static void check_cost(ngx_conf_t *cf, Param *param)
{
    u_char *p, *last;
    ngx_str_t name;

    last = param->value.data + param->value.len;

    for (p = param->value.data; p < last; p++) {

        if (*p != '$') {
            continue;
        }

        p += (p + 1 < last && p[1] == '{') ? 2 : 1;

        name.data = p;

        while (p < last && is_word(*p)) {
            p++;
        }

        name.len = p - name.data;

        /* the loop goes on with the character after the name */
        p--;

        if (is_of_response(&name)) {
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "\"$%V\" in \"%V\" is known only after the "
                               "response, but \"cost=\" is evaluated before "
                               "it, use \"settle=\"",
                               &name, &param->word);
        }
    }
}

static ngx_uint_t is_of_response(ngx_str_t *name)
{
    ngx_str_t *v;

    for (v = response_variables; v->len; v++) {

        if ((v->data[v->len - 1] == '_') ? name->len < v->len
                                         : name->len != v->len) {
            continue;
        }

        /* NGINX does not distinguish case in names of variables */

        if (ngx_strncasecmp(name->data, v->data, v->len) == 0) {
            return 1;
        }
    }

    return 0;
}

} // namespace limit_sliding
