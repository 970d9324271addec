
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/algorithm_param.hpp"

#include "http/parameter.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static char *zone_number(ngx_conf_t *cf, Param *param, uint32_t minimum,
                         uint32_t maximum, uint32_t *number);

/* By Algorithm. */

static ngx_str_t algorithm_names[] = {
    ngx_string("counter"),      ngx_string("log"),          ngx_string("fixed"),
    ngx_string("token_bucket"), ngx_string("leaky_bucket"), ngx_null_string};

/* An algorithm and what belongs to it; the zone's rate is known. */

char *set_algorithm(ngx_conf_t *cf, ZoneConf *zone, Param *param,
                    Param *precision, Param *burst)
{
    ngx_str_t *name;
    Policy *policy;
    Algorithm algorithm;

    policy = &zone->policy;

    if (param->word.len) {
        name = algorithm_names;

        while (name->len && ngx_strcmp(param->value.data, name->data) != 0) {
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

        policy->algorithm = static_cast<Algorithm>(name - algorithm_names);
    }

    algorithm = policy->algorithm;

    if (precision->word.len && algorithm != Algorithm::kCounter) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" belongs to \"algorithm=counter\" only",
                           &precision->word);
        return NGX_CONF_ERROR;
    }

    if (burst->word.len && algorithm != Algorithm::kTokenBucket
        && algorithm != Algorithm::kLeakyBucket) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" belongs to \"algorithm=token_bucket\" and "
                           "\"algorithm=leaky_bucket\" only",
                           &burst->word);
        return NGX_CONF_ERROR;
    }

    if (zone_number(cf, precision, 1, 60, &policy->precision) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    /* a bucket that holds no token would admit nobody */

    if (zone_number(cf, burst, algorithm == Algorithm::kTokenBucket, kLimitMax,
                    &policy->burst)
        != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (policy->burst && zone->limit
        && limit_sliding::capacity(policy, zone->limit) < policy->burst) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" is too much for this rate, at which it "
                           "takes longer than 49 days to run off",
                           &burst->word);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}

ngx_str_t *algorithm_name(Algorithm algorithm)
{
    return &algorithm_names[index_of(algorithm)];
}

static char *zone_number(ngx_conf_t *cf, Param *param, uint32_t minimum,
                         uint32_t maximum, uint32_t *number)
{
    ngx_int_t n;

    if (param->word.len == 0) {
        return NGX_CONF_OK;
    }

    n = ngx_atoi(param->value.data, param->value.len);

    if (n == NGX_ERROR || n < minimum || n > maximum) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid number \"%V\", it must be between %uD "
                           "and %uD",
                           &param->word, minimum, maximum);
        return NGX_CONF_ERROR;
    }

    *number = (uint32_t)n;

    return NGX_CONF_OK;
}

} // namespace limit_sliding
