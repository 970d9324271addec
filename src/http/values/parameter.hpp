/* Copyright (C) the limit_sliding authors */

/* Parameters of a directive: "name=value", or a flag. */

#pragma once

#include <string_view>

#include "ngx/conf.hpp"
#include "ngx/containers.hpp"
#include "ngx/ngx.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

/* A parameter as the configuration writes it. */
struct Param {
    ngx_conf_t *cf;
    ngx_str_t word; /* the whole word: "zone=one:1m" */
    ngx_str_t text; /* the value: "one:1m" */

    std::string_view value() const { return view(text); }

    /* Logs a message and returns false.  The word is the first value of the format. */
    template <class... Args>
    bool invalid(const char *format, Args... args) const {
        return conf_invalid(cf, format, &word, args...);
    }

    /* Warns of the unit "M", a month of 30 days, which hardly anybody means. */
    void warn_of_months(ngx_int_t days) const {
        if (value().find('M') == std::string_view::npos) { return; }

        ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "\"%V\" is %i days, minutes are \"m\"", &word,
                           days);
    }

    /* Parses an integer.  Logs an error and returns false if it is out of bounds. */
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

    /* Sets `is_first` to whether the value is `first`.  Logs an error if it is neither word. */
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
    std::string_view text;           /* "zone=", or the whole word of a flag */
    std::string_view required = {};  /* name in the error if missing; empty: optional */
    std::string_view instead = {};   /* parameter that may take the place of a required one */
    std::string_view separator = {}; /* between the values of a list; empty: a single value */
};

/* Parameters of another directive that are often given to this one. */
struct Elsewhere {
    std::string_view directive; /* name of the other directive */
    Span<const ParamName> names;
};

/* Sets a member of the target.  `set` logs an error and returns false for a wrong value. */
template <class Target>
struct ParamRule {
    ParamName name;
    bool (*set)(const Param &param, Target &target);
};

/* Returns the words of the directive; the first one is its name. */
inline Span<ngx_str_t> words_of(ngx_conf_t *cf) { return span<ngx_str_t>(*cf->args); }

/* Finds the parameters from the i-th word of the directive on: params[n] belongs to names[n], and
 * is empty if the parameter is omitted.  Logs an error and returns false for an unknown word, a
 * duplicate, and a missing required parameter. */
bool find_params(ngx_conf_t *cf, ngx_uint_t i, Span<const ParamName> names,
                 const Elsewhere &elsewhere, Param *params);

/* Calls the setters of the given parameters, in the order of the rules. */
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
