/* Copyright (C) the limit_sliding authors */

/* Parameters of a directive, "name=value" or a word alone. */

#pragma once

#include <string_view>

#include "ngx/array.hpp"
#include "ngx/conf.hpp"
#include "ngx/ngx.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

/* A parameter as it is given. */
struct Param {
    ngx_conf_t *cf;
    ngx_str_t word; /* "zone=one:1m" */
    ngx_str_t text; /* "one:1m" */

    std::string_view value() const { return view(text); }

    /* Logs a message with the word as the first value; returns false. */
    template <class... Args>
    bool invalid(const char *format, Args... args) const {
        return conf_invalid(cf, format, &word, args...);
    }

    /* Sets `number`; `what` names the value in a message about its bounds. */
    template <class Number>
    bool get_number(const char *what, uint32_t minimum, uint32_t maximum, Number &number) const {
        ngx_int_t n = ngx_atoi(text.data, text.len);
        if (n == NGX_ERROR || n < minimum || n > maximum) {
            return conf_invalid(cf, "invalid %s \"%V\", it must be between %uD and %uD", what,
                                &word, minimum, maximum);
        }

        number = static_cast<Number>(n);
        return true;
    }

    /* Tells by `is_first` which of two words the value is; false: neither. */
    template <class Flag>
    bool get_either(const char *first, const char *second, Flag &is_first) const {
        is_first = value() == first;
        if (!is_first && value() != second) {
            ngx_str_t name = {word.len - text.len, word.data};
            return invalid("invalid parameter \"%V\", it must be \"%V%s\" or \"%V%s\"", &name,
                           first, &name, second);
        }

        return true;
    }
};

struct ParamName {
    std::string_view text;          /* "zone=", or a word that has no value */
    std::string_view required = {}; /* for the message that it is missing */
};

/* Parameters that are often given to the wrong directive. */
struct Elsewhere {
    std::string_view directive; /* to which they belong */
    Span<const ParamName> names;
};

/* How a parameter sets the target; `set` logs why not, and returns false. */
template <class Target>
struct ParamRule {
    ParamName name;
    bool (*set)(const Param &param, Target &target);
};

/* Returns the words of the directive; the first one is its name. */
inline Span<ngx_str_t> words_of(ngx_conf_t *cf) { return span<ngx_str_t>(*cf->args); }

/* Finds the word for each name, from the i-th word on; params without one keep
 * an empty word.  Logs words that are unknown, with a suggestion, or given
 * twice, and names that are missing, and returns false. */
bool find_params(ngx_conf_t *cf, ngx_uint_t i, Span<const ParamName> names,
                 const Elsewhere &elsewhere, Param *params);

/* Calls the setters of the given words, in the order of the rules. */
template <class Target, size_t N>
bool set_params(ngx_conf_t *cf, ngx_uint_t i, const ParamRule<Target> (&rules)[N], Target &target,
                const Elsewhere &elsewhere = {}) {
    ParamName names[N];
    for (size_t n = 0; n < N; n++) {
        names[n] = rules[n].name;
    }

    Param params[N] = {};
    bool valid = find_params(cf, i, names, elsewhere, params);
    for (size_t n = 0; n < N && valid; n++) {
        valid = params[n].word.len == 0 || rules[n].set(params[n], target);
    }

    return valid;
}

} // namespace limit_sliding
