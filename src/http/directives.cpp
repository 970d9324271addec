
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/configuration.hpp"
#include "http/module.hpp"
#include "http/parameter.hpp"

namespace limit_sliding {

static ngx_uint_t is_param(ngx_str_t *word, ngx_str_t *name);

static ngx_conf_enum_t log_levels[] = {{ngx_string("off"), 0},
                                       {ngx_string("info"), NGX_LOG_INFO},
                                       {ngx_string("notice"), NGX_LOG_NOTICE},
                                       {ngx_string("warn"), NGX_LOG_WARN},
                                       {ngx_string("error"), NGX_LOG_ERR},
                                       {ngx_null_string, 0}};

/*
 * Takes the arguments from the i-th on apart.  `params` ends with a name that
 * is empty; a parameter that is not given has a word that is empty.
 */

char *parse_params(ngx_conf_t *cf, ngx_uint_t i, Param *params)
{
    ngx_str_t *value;
    Param *param;

    for (param = params; param->name.len; param++) {
        ngx_str_null(&param->word);
        ngx_str_null(&param->value);
    }

    value = cf->args->elts;

    for (/* void */; i < cf->args->nelts; i++) {

        param = params;

        while (param->name.len && !is_param(&value[i], &param->name)) {
            param++;
        }

        if (param->name.len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                               &value[i]);
            return NGX_CONF_ERROR;
        }

        if (param->word.len) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate parameter \"%V\"", &value[i]);
            return NGX_CONF_ERROR;
        }

        param->word = value[i];
        param->value.data = value[i].data + param->name.len;
        param->value.len = value[i].len - param->name.len;
    }

    return NGX_CONF_OK;
}

static ngx_uint_t is_param(ngx_str_t *word, ngx_str_t *name)
{
    if (name->data[name->len - 1] == '=') {
        return word->len > name->len
               && ngx_strncmp(word->data, name->data, name->len) == 0;
    }

    return word->len == name->len
           && ngx_strncmp(word->data, name->data, name->len) == 0;
}

extern "C" char *ngx_http_limit_sliding_status(ngx_conf_t *cf,
                                               ngx_command_t *cmd, void *conf)
{
    LocConf *lscf = conf;

    ngx_int_t code;
    ngx_str_t *value;

    if (lscf->status_code != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    code = ngx_atoi(value[1].data, value[1].len);

    if (code < 400 || code > 599) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid status \"%V\", it must be between 400 "
                           "and 599",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    lscf->status_code = code;

    return NGX_CONF_OK;
}

extern "C" char *ngx_http_limit_sliding_log_level(ngx_conf_t *cf,
                                                  ngx_command_t *cmd,
                                                  void *conf)
{
    LocConf *lscf = conf;

    ngx_int_t ms;
    ngx_str_t *value;
    ngx_conf_enum_t *level;

    enum { EVERY, NPARAMS };

    Param params[NPARAMS + 1]
        = {{ngx_string("every="), ngx_null_string, ngx_null_string},
           {ngx_null_string, ngx_null_string, ngx_null_string}};

    if (lscf->log_level != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (level = log_levels; level->name.len; level++) {
        if (ngx_strcmp(value[1].data, level->name.data) == 0) {
            break;
        }
    }

    if (level->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid log level \"%V\", it must be \"info\", "
                           "\"notice\", \"warn\", \"error\" or \"off\"",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    if (parse_params(cf, 2, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    lscf->log_level = level->value;
    lscf->log_every = 0;

    if (params[EVERY].word.len) {
        ms = ngx_parse_time(&params[EVERY].value, 0);

        if (ms == (ngx_int_t)NGX_ERROR || ms == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid time \"%V\"",
                               &params[EVERY].word);
            return NGX_CONF_ERROR;
        }

        lscf->log_every = ms;
    }

    return NGX_CONF_OK;
}

extern "C" char *ngx_http_limit_sliding_headers(ngx_conf_t *cf,
                                                ngx_command_t *cmd, void *conf)
{
    LocConf *lscf = conf;

    ngx_str_t *value;

    enum { OFF, RETRY_AFTER, DRAFT, X };

    Param params[]
        = {{ngx_string("off"), ngx_null_string, ngx_null_string},
           {ngx_string("retry_after"), ngx_null_string, ngx_null_string},
           {ngx_string("draft"), ngx_null_string, ngx_null_string},
           {ngx_string("x"), ngx_null_string, ngx_null_string},
           {ngx_null_string, ngx_null_string, ngx_null_string}};

    if (lscf->headers != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    if (parse_params(cf, 1, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    if (params[OFF].word.len && cf->args->nelts > 2) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"off\" stands alone, it cannot be combined with "
                           "\"%V\"",
                           &value[ngx_strcmp(value[1].data, "off") ? 1 : 2]);
        return NGX_CONF_ERROR;
    }

    lscf->headers = 0;

    if (params[RETRY_AFTER].word.len) {
        lscf->headers |= kHeaderRetryAfter;
    }

    if (params[DRAFT].word.len) {
        lscf->headers |= kHeaderDraft;
    }

    if (params[X].word.len) {
        lscf->headers |= kHeaderX;
    }

    return NGX_CONF_OK;
}

} // namespace limit_sliding
