/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/parameter.hpp"

#include <algorithm>

#include "ngx/conf.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

bool gives(std::string_view word, std::string_view name)
{
    return name.back() == '='
               ? word.size() > name.size() && starts_with(word, name)
               : word == name;
}

} // namespace

bool find_params(ngx_conf_t *cf, ngx_uint_t i, Span<const ParamName> names,
                 Param *params)
{
    auto words = words_of(cf);

    for (; i < words.size(); i++) {
        ngx_str_t word = words[i];

        auto *name = std::find_if(names.begin(), names.end(),
                                  [&](const ParamName &known) {
                                      return gives(view(word), known.text);
                                  });

        if (name == names.end()) {
            return conf_invalid(cf, "invalid parameter \"%V\"", &word);
        }

        Param &param = params[name - names.begin()];
        if (param.word.len != 0) {
            return conf_invalid(cf, "duplicate parameter \"%V\"", &word);
        }

        size_t skip = name->text.size();
        param.word = word;
        param.value = {word.len - skip, word.data + skip};
    }

    for (auto &name : names) {
        if (!name.required.empty()
            && params[&name - names.begin()].word.len == 0) {
            ngx_str_t required = to_str(name.required);
            return conf_invalid(cf, "\"%V\" must have \"%V\" parameter",
                                &words[0], &required);
        }
    }

    return true;
}

bool set_number(ngx_conf_t *cf, const char *what, const Param &param,
                uint32_t minimum, uint32_t maximum, uint32_t *number)
{
    ngx_int_t n = ngx_atoi(param.value.data, param.value.len);

    if (n == NGX_ERROR || n < minimum || n > maximum) {
        return conf_invalid(cf,
                            "invalid %s \"%V\", it must be between %uD and %uD",
                            what, &param.word, minimum, maximum);
    }

    *number = static_cast<uint32_t>(n);
    return true;
}

bool set_either(ngx_conf_t *cf, const Param &param, const char *first,
                const char *second, bool *is_first)
{
    auto value = view(param.value);

    if (value != first && value != second) {
        ngx_str_t name = {param.word.len - param.value.len, param.word.data};
        return conf_invalid(
            cf, "invalid parameter \"%V\", it must be \"%V%s\" or \"%V%s\"",
            &param.word, &name, first, &name, second);
    }

    *is_first = (value == first);
    return true;
}

} // namespace limit_sliding
