/*
 * Copyright (C) the limit_sliding authors
 */

/* Parameters of a directive, "name=value" or a word alone. */

#ifndef LIMIT_SLIDING_HTTP_PARAMETER_HPP
#define LIMIT_SLIDING_HTTP_PARAMETER_HPP

#include <string_view>

#include "ngx/array.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

struct Param {
    ngx_str_t word;  /* as written, "zone=one:1m"; empty: it is not given */
    ngx_str_t value; /* of it, "one:1m" */
};

/* A parameter that a directive knows. */
struct ParamName {
    std::string_view text;          /* "zone=", or a word that has no value */
    std::string_view required = {}; /* for an error if it is not given */
};

/* What its value sets; `set` logs what is wrong, and returns false then. */
template <class Target>
struct ParamRule {
    ParamName name;
    bool (*set)(ngx_conf_t *cf, const Param &param, Target &target);
};

/* The words of the directive; the first one is its name. */
inline Span<ngx_str_t> words_of(ngx_conf_t *cf)
{
    return span<ngx_str_t>(*cf->args);
}

/*
 * Finds for each name the word that gives it, from the i-th on.  Logs words
 * that are unknown or given twice, and names that are missing; false then.
 */
bool find_params(ngx_conf_t *cf, ngx_uint_t i, Span<const ParamName> names,
                 Param *params);

/* Sets the parameters that are given from the i-th word on, as rules go. */
template <class Target, size_t N>
bool set_params(ngx_conf_t *cf, ngx_uint_t i,
                const ParamRule<Target> (&rules)[N], Target &target)
{
    ParamName names[N];
    for (size_t n = 0; n < N; n++) {
        names[n] = rules[n].name;
    }

    Param params[N] = {};
    if (!find_params(cf, i, names, params)) {
        return false;
    }

    for (size_t n = 0; n < N; n++) {
        if (params[n].word.len != 0 && !rules[n].set(cf, params[n], target)) {
            return false;
        }
    }

    return true;
}

/* Sets *number; `what` says in the error message what is out of bounds. */
bool set_number(ngx_conf_t *cf, const char *what, const Param &param,
                uint32_t minimum, uint32_t maximum, uint32_t *number);

/* Sets *is_first by which of two words the value is. */
bool set_either(ngx_conf_t *cf, const Param &param, const char *first,
                const char *second, bool *is_first);

} // namespace limit_sliding

#endif
