/* Copyright (C) the limit_sliding authors */

/* Text with variables in it: keys, rates and costs. */

#pragma once

#include <optional>
#include <string_view>

#include "ngx/ngx.hpp"

namespace limit_sliding {

struct Expression {
    ngx_http_complex_value_t complex;
    ngx_int_t index; /* index of the variable if the text is just one variable, else NGX_ERROR */
};

inline bool has_variables(const ngx_str_t &text) {
    return ngx_http_script_variables_count(const_cast<ngx_str_t *>(&text)) != 0;
}

/* Returns the name of the text's first variable, and removes the text up to the end of the name.
 * The name is empty if none follows the "$".  Returns nullopt if there is no "$". */
std::optional<std::string_view> next_variable(std::string_view &text);

/* Returns the variable's name if the text is exactly "$name" or "${name}", else an empty text. */
std::string_view only_variable(std::string_view text);

/* Compiles the text.  Logs an error and returns false if the text is invalid. */
bool compile_expression(ngx_conf_t *cf, const ngx_str_t &text, Expression &expression);

/* Compiles the text in memory of the configuration.  Returns false if that fails. */
bool create_expression(ngx_conf_t *cf, const ngx_str_t &text, Expression *&expression);

/* Returns the value as ngx_http_get_flushed_variable() does, in half as many instructions.  A
 * guard against variables that refer to themselves is not needed here: nested evaluations go
 * through NGINX's function, which has one. */
inline ngx_http_variable_value_t *get_variable(ngx_http_request_t *r, ngx_uint_t index) {
    auto *value = &r->variables[index];
    if (value->valid || value->not_found) {
        if (!value->no_cacheable) { return value; }

        value->valid = 0;
        value->not_found = 0;
    }

    const auto &core = *static_cast<ngx_http_core_main_conf_t *>(
        ngx_http_get_module_main_conf(r, ngx_http_core_module));
    const auto &variable = static_cast<ngx_http_variable_t *>(core.variables.elts)[index];
    if (variable.get_handler(r, value, variable.data) != NGX_OK) {
        value->valid = 0;
        value->not_found = 1;
        return nullptr;
    }

    if ((variable.flags & NGX_HTTP_VAR_NOCACHEABLE) != 0) { value->no_cacheable = 1; }

    return value;
}

/* Evaluates the expression for a request.  A variable that is not found is an empty text. */
[[gnu::always_inline]] inline ngx_int_t get_text(ngx_http_request_t *r, Expression *expression,
                                                 ngx_str_t *text) {
    if (expression->index == NGX_ERROR) {
        ngx_str_t value;
        ngx_int_t rc = ngx_http_complex_value(r, &expression->complex, &value);
        text->len = value.len;
        text->data = value.data;
        return rc;
    }

    /* Most texts are a single variable, which is read directly. */
    ngx_http_variable_value_t *vv = get_variable(r, expression->index);

    if (vv == nullptr || vv->not_found) {
        *text = {};
        return NGX_OK;
    }

    text->len = vv->len;
    text->data = vv->data;
    return NGX_OK;
}

} // namespace limit_sliding
