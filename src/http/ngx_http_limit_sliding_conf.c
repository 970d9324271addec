
/*
 * Copyright (C) the limit_sliding authors
 */


#include "ngx_http_limit_sliding.h"


static char *ngx_http_limit_sliding_off(ngx_conf_t *cf,
    ngx_http_limit_sliding_conf_t *lscf);


static ngx_conf_enum_t  ngx_http_limit_sliding_log_levels[] = {
    { ngx_string("off"), 0 },
    { ngx_string("info"), NGX_LOG_INFO },
    { ngx_string("notice"), NGX_LOG_NOTICE },
    { ngx_string("warn"), NGX_LOG_WARN },
    { ngx_string("error"), NGX_LOG_ERR },
    { ngx_null_string, 0 }
};


/*
 * Takes the arguments from the i-th on apart.  `params` ends with a name that
 * is empty; a parameter that is not given has a word that is empty.
 */

char *
ngx_http_limit_sliding_params(ngx_conf_t *cf, ngx_uint_t i,
    ngx_http_limit_sliding_param_t *params)
{
    ngx_str_t                       *value;
    ngx_http_limit_sliding_param_t  *param;

    for (param = params; param->name.len; param++) {
        ngx_str_null(&param->word);
        ngx_str_null(&param->value);
    }

    value = cf->args->elts;

    for ( /* void */ ; i < cf->args->nelts; i++) {

        for (param = params; param->name.len; param++) {
            if (value[i].len > param->name.len
                && ngx_strncmp(value[i].data, param->name.data,
                               param->name.len)
                   == 0)
            {
                break;
            }
        }

        if (param->name.len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\"", &value[i]);
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


char *
ngx_http_limit_sliding(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_limit_sliding_conf_t  *lscf = conf;

    ngx_str_t                       *value;
    ngx_uint_t                       i;
    ngx_http_limit_sliding_zone_t   *zone;
    ngx_http_limit_sliding_limit_t  *limit;

    enum { ZONE, NPARAMS };

    ngx_http_limit_sliding_param_t   params[NPARAMS + 1] = {
        { ngx_string("zone="), ngx_null_string, ngx_null_string },
        { ngx_null_string, ngx_null_string, ngx_null_string }
    };

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        return ngx_http_limit_sliding_off(cf, lscf);
    }

    if (lscf->limits == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"limit_sliding off\" stands alone, it cannot be "
                           "combined with \"%V\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_limit_sliding_params(cf, 1, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (params[ZONE].word.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter", &cmd->name);
        return NGX_CONF_ERROR;
    }

    zone = ngx_http_limit_sliding_get_zone(cf, &params[ZONE].value);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (lscf->limits == NGX_CONF_UNSET_PTR) {
        lscf->limits = ngx_array_create(cf->pool, 2,
                                       sizeof(ngx_http_limit_sliding_limit_t));
        if (lscf->limits == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    limit = lscf->limits->elts;

    for (i = 0; i < lscf->limits->nelts; i++) {
        if (limit[i].zone == zone) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate limit \"%V\"",
                               &params[ZONE].word);
            return NGX_CONF_ERROR;
        }
    }

    limit = ngx_array_push(lscf->limits);
    if (limit == NULL) {
        return NGX_CONF_ERROR;
    }

    limit->zone = zone;

    return NGX_CONF_OK;
}


static char *
ngx_http_limit_sliding_off(ngx_conf_t *cf, ngx_http_limit_sliding_conf_t *lscf)
{
    if (lscf->limits == NULL) {
        return "\"off\" is duplicate";
    }

    if (lscf->limits != NGX_CONF_UNSET_PTR) {
        return "\"off\" stands alone, it cannot be combined with a zone";
    }

    lscf->limits = NULL;

    return NGX_CONF_OK;
}


char *
ngx_http_limit_sliding_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_limit_sliding_conf_t  *lscf = conf;

    ngx_int_t   code;
    ngx_str_t  *value;

    if (lscf->status_code != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    code = ngx_atoi(value[1].data, value[1].len);

    if (code < 400 || code > 599) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid status \"%V\", it must be between 400 "
                           "and 599", &value[1]);
        return NGX_CONF_ERROR;
    }

    lscf->status_code = code;

    return NGX_CONF_OK;
}


char *
ngx_http_limit_sliding_log_level(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_limit_sliding_conf_t  *lscf = conf;

    ngx_int_t         ms;
    ngx_str_t        *value;
    ngx_conf_enum_t  *level;

    enum { EVERY, NPARAMS };

    ngx_http_limit_sliding_param_t  params[NPARAMS + 1] = {
        { ngx_string("every="), ngx_null_string, ngx_null_string },
        { ngx_null_string, ngx_null_string, ngx_null_string }
    };

    if (lscf->log_level != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (level = ngx_http_limit_sliding_log_levels; level->name.len; level++) {
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

    if (ngx_http_limit_sliding_params(cf, 2, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    lscf->log_level = level->value;
    lscf->log_every = 0;

    if (params[EVERY].word.len) {
        ms = ngx_parse_time(&params[EVERY].value, 0);

        if (ms == (ngx_int_t) NGX_ERROR || ms == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid time \"%V\"", &params[EVERY].word);
            return NGX_CONF_ERROR;
        }

        lscf->log_every = ms;
    }

    return NGX_CONF_OK;
}
