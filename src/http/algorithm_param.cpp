/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/algorithm_param.hpp"

#include "ngx/conf.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

/* by Algorithm */
const ngx_str_t names[]
    = {ngx_string("counter"), ngx_string("log"), ngx_string("fixed"),
       ngx_string("token_bucket"), ngx_string("leaky_bucket")};

} // namespace

const ngx_str_t *algorithm_name(Algorithm algorithm)
{
    return &names[index_of(algorithm)];
}

bool set_algorithm(ngx_conf_t *cf, const Param &param, ZoneConf &zone)
{
    for (auto &name : names) {
        if (view(param.value) == view(name)) {
            zone.policy.algorithm = static_cast<Algorithm>(&name - names);
            return true;
        }
    }

    return conf_invalid(
        cf,
        "unknown algorithm \"%V\", it must be \"counter\", \"log\", "
        "\"fixed\", \"token_bucket\" or \"leaky_bucket\"",
        &param.word);
}

bool set_precision(ngx_conf_t *cf, const Param &param, ZoneConf &zone)
{
    if (zone.policy.algorithm != Algorithm::kCounter) {
        return conf_invalid(cf, "\"%V\" belongs to \"algorithm=counter\" only",
                            &param.word);
    }

    return set_number(cf, "number", param, 1, 60, &zone.policy.precision);
}

bool set_burst(ngx_conf_t *cf, const Param &param, ZoneConf &zone)
{
    auto &policy = zone.policy;

    if (policy.algorithm != Algorithm::kTokenBucket
        && policy.algorithm != Algorithm::kLeakyBucket) {
        return conf_invalid(cf,
                            "\"%V\" belongs to \"algorithm=token_bucket\" and "
                            "\"algorithm=leaky_bucket\" only",
                            &param.word);
    }

    /* a bucket that holds no token would admit nobody */
    uint32_t minimum = (policy.algorithm == Algorithm::kTokenBucket);
    if (!set_number(cf, "number", param, minimum, kLimitMax, &policy.burst)) {
        return false;
    }

    if (policy.burst != 0 && zone.limit != 0
        && capacity(&policy, zone.limit) < policy.burst) {
        return conf_invalid(
            cf,
            "\"%V\" is too much for this rate, at which it takes longer "
            "than 49 days to run off",
            &param.word);
    }

    return true;
}

} // namespace limit_sliding
