/* Copyright (C) the limit_sliding authors */

#include "http/parameter.hpp"

#include <algorithm>

namespace limit_sliding {

bool find_params(ngx_conf_t *cf, ngx_uint_t i, Span<const ParamName> names, Param *params) {
    auto words = words_of(cf);
    for (; i < words.size(); i++) {
        auto &word = words[i];
        auto *name = std::find_if(names.begin(), names.end(), [&](auto &known) {
            return known.text.back() == '='
                       ? word.len > known.text.size() && starts_with(view(word), known.text)
                       : view(word) == known.text;
        });

        if (name == names.end()) { return conf_invalid(cf, "invalid parameter \"%V\"", &word); }

        auto &param = params[name - names.begin()];
        if (param.word.len != 0) { return conf_invalid(cf, "duplicate parameter \"%V\"", &word); }

        size_t skip = name->text.size();
        param = {cf, word, {word.len - skip, word.data + skip}};
    }

    for (auto &name : names) {
        if (!name.required.empty() && params[&name - names.begin()].word.len == 0) {
            ngx_str_t required = to_str(name.required);
            return conf_invalid(cf, "\"%V\" must have \"%V\" parameter", &words[0], &required);
        }
    }

    return true;
}

} // namespace limit_sliding
