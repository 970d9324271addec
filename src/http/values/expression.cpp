/* Copyright (C) the limit_sliding authors */

#include "http/values/expression.hpp"

#include "ngx/conf.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

constexpr bool is_name_char(char ch) {
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9')
           || ch == '_';
}

} // namespace

std::optional<std::string_view> next_variable(std::string_view &text) {
    size_t dollar = text.find('$');
    if (dollar == text.npos) { return std::nullopt; }

    text.remove_prefix(dollar + 1);
    if (starts_with(text, "{")) { text.remove_prefix(1); }

    size_t size = 0;
    while (size < text.size() && is_name_char(text[size])) {
        size++;
    }

    std::string_view name(text.data(), size);
    text.remove_prefix(size);
    return name;
}

std::string_view only_variable(std::string_view text) {
    auto rest = text;
    const auto name = next_variable(rest).value_or(std::string_view());
    const bool is_all = starts_with(text, "${") ? rest == "}" : text.size() == name.size() + 1;
    return is_all ? name : std::string_view();
}

bool compile_expression(ngx_conf_t *cf, const ngx_str_t &text, Expression &expression) {
    /* NGINX's own error does not say which text is invalid. */
    auto rest = view(text);
    while (auto name = next_variable(rest)) {
        if (name->empty()) { return conf_invalid(cf, "invalid variable name in \"%V\"", &text); }
    }

    ngx_str_t value = text;
    ngx_http_compile_complex_value_t ccv = {};
    ccv.cf = cf;
    ccv.value = &value;
    ccv.complex_value = &expression.complex;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) { return false; }

    expression.index = NGX_ERROR;

    /* Captures of regular expressions, such as $1, have no index. */
    const auto name = only_variable(view(text));
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) { return true; }

    ngx_str_t variable = to_str(name);
    expression.index = ngx_http_get_variable_index(cf, &variable);
    return expression.index != NGX_ERROR;
}

bool create_expression(ngx_conf_t *cf, const ngx_str_t &text, Expression *&expression) {
    expression = create<Expression>(cf->pool);
    return expression != nullptr && compile_expression(cf, text, *expression);
}

} // namespace limit_sliding
