
/*
 * Copyright (C) the limit_sliding authors
 */


#include "http/http.h"


static char *ngx_http_limit_sliding_zone_number(ngx_conf_t *cf,
    ngx_http_limit_sliding_param_t *param, uint32_t minimum, uint32_t maximum,
    uint32_t *number);


/* By limit_sliding_algorithm_t. */

static ngx_str_t  ngx_http_limit_sliding_algorithms[] = {
    ngx_string("counter"),
    ngx_string("log"),
    ngx_string("fixed"),
    ngx_string("token_bucket"),
    ngx_string("leaky_bucket"),
    ngx_null_string
};


/* An algorithm and what belongs to it; the zone's rate is known. */

char *
ngx_http_limit_sliding_set_algorithm(ngx_conf_t *cf,
    ngx_http_limit_sliding_zone_t *zone, ngx_http_limit_sliding_param_t *param,
    ngx_http_limit_sliding_param_t *precision,
    ngx_http_limit_sliding_param_t *burst)
{
    ngx_str_t                  *name;
    limit_sliding_policy_t     *policy;
    limit_sliding_algorithm_t   algorithm;

    policy = &zone->policy;

    if (param->word.len) {
        name = ngx_http_limit_sliding_algorithms;

        while (name->len
               && ngx_strcmp(param->value.data, name->data) != 0)
        {
            name++;
        }

        if (name->len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "unknown algorithm \"%V\", it must be "
                               "\"counter\", \"log\", \"fixed\", "
                               "\"token_bucket\" or \"leaky_bucket\"",
                               &param->word);
            return NGX_CONF_ERROR;
        }

        policy->algorithm = name - ngx_http_limit_sliding_algorithms;
    }

    algorithm = policy->algorithm;

    if (precision->word.len && algorithm != LIMIT_SLIDING_COUNTER) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" belongs to \"algorithm=counter\" only",
                           &precision->word);
        return NGX_CONF_ERROR;
    }

    if (burst->word.len
        && algorithm != LIMIT_SLIDING_TOKEN_BUCKET
        && algorithm != LIMIT_SLIDING_LEAKY_BUCKET)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" belongs to \"algorithm=token_bucket\" and "
                           "\"algorithm=leaky_bucket\" only",
                           &burst->word);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_limit_sliding_zone_number(cf, precision, 1, 60,
                                           &policy->precision)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    /* a bucket that holds no token would admit nobody */

    if (ngx_http_limit_sliding_zone_number(cf, burst,
                                     algorithm == LIMIT_SLIDING_TOKEN_BUCKET,
                                     LIMIT_SLIDING_LIMIT_MAX, &policy->burst)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (policy->burst && zone->limit
        && limit_sliding_capacity(policy, zone->limit) < policy->burst)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" is too much for this rate, at which it "
                           "takes longer than 49 days to run off",
                           &burst->word);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


ngx_str_t *
ngx_http_limit_sliding_algorithm(limit_sliding_algorithm_t algorithm)
{
    return &ngx_http_limit_sliding_algorithms[algorithm];
}


static char *
ngx_http_limit_sliding_zone_number(ngx_conf_t *cf,
    ngx_http_limit_sliding_param_t *param, uint32_t minimum, uint32_t maximum,
    uint32_t *number)
{
    ngx_int_t  n;

    if (param->word.len == 0) {
        return NGX_CONF_OK;
    }

    n = ngx_atoi(param->value.data, param->value.len);

    if (n == NGX_ERROR || n < minimum || n > maximum) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid number \"%V\", it must be between %uD "
                           "and %uD", &param->word, minimum, maximum);
        return NGX_CONF_ERROR;
    }

    *number = (uint32_t) n;

    return NGX_CONF_OK;
}
