/* Copyright (C) the limit_sliding authors */

#include "http/parameter.hpp"

#include <algorithm>

namespace limit_sliding {
namespace {

using Names = Span<const ParamName>;

bool has_value(const ParamName &name) { return name.text.back() == '='; }

/* Returns the name without its "=". */
std::string_view bare(const ParamName &name) {
    return first(name.text, name.text.size() - has_value(name));
}

/* Returns the name that the word has; the end: it has none of these. */
const ParamName *find_name(Names names, std::string_view word) {
    return std::find_if(names.begin(), names.end(), [&](auto &name) {
        return has_value(name) ? word.size() > name.text.size() && starts_with(word, name.text)
                               : word == name.text;
    });
}

bool is_known(Names names, std::string_view word) { return find_name(names, word) != names.end(); }

/* Returns the i-th word of the directive; empty: it has less. */
std::string_view word_at(ngx_conf_t *cf, ngx_uint_t i) {
    auto words = words_of(cf);
    return i < words.size() ? view(words[i]) : std::string_view();
}

/* Logs the word with what it should have been; returns false. */
bool did_you_mean(ngx_conf_t *cf, const ngx_str_t &word, std::string_view name,
                  std::string_view value = {}, const char *how = "") {
    return conf_invalid(cf, "invalid parameter \"%V\", did you mean \"%*s%*s\"%s?", &word,
                        name.size(), name.data(), value.size(), value.data(), how);
}

/* "dry_run=on" */
bool flag_with_value(ngx_conf_t *cf, const ngx_str_t &word, std::string_view name) {
    auto value = view(word);
    value.remove_prefix(name.size() + 1);
    if (value != "off" && value != "no" && value != "0") { return did_you_mean(cf, word, name); }

    return conf_invalid(cf, "invalid parameter \"%V\", \"%*s\" is off where it is left out", &word,
                        name.size(), name.data());
}

/* Tells whether a word was to be the value of the flag before it: "dry_run on" */
bool is_value_of_flag(std::string_view word, Names names, std::string_view before) {
    const auto *name = find_name(names, before);
    return name != names.end() && !has_value(*name)
           && (word == "on" || word == "off" || starts_with(word, "="));
}

/* "zone = a", "zone= a", "zone =a", "zone a", or no value at all */
bool value_apart(ngx_conf_t *cf, ngx_uint_t i, Names names, const ParamName &name) {
    auto &word = words_of(cf)[i];
    auto value = word_at(cf, i + 1);
    if (value == "=") {
        value = word_at(cf, i + 2);
    } else if (!value.empty() && value.front() == '=') {
        value.remove_prefix(1);
    }

    if (value.empty() || is_known(names, value)) {
        return conf_invalid(cf, "invalid parameter \"%V\", it needs a value", &word);
    }

    return did_you_mean(cf, word, name.text, value, " without spaces");
}

/* Returns true if names differ in case, "-" and "_" only. */
bool is_similar(std::string_view a, std::string_view b) {
    auto skip = [](std::string_view &text) {
        while (!text.empty() && (text.front() == '-' || text.front() == '_')) {
            text.remove_prefix(1);
        }
    };

    for (;;) {
        skip(a);
        skip(b);
        if (a.empty() || b.empty()) { return a.empty() && b.empty(); }

        if (ngx_tolower(a.front()) != ngx_tolower(b.front())) { return false; }

        a.remove_prefix(1);
        b.remove_prefix(1);
    }
}

/* Logs that a word is none of the names, and what it may have been meant to be;
 * returns false. */
bool unknown_parameter(ngx_conf_t *cf, ngx_uint_t i, Names names, const Elsewhere &elsewhere) {
    auto &word = words_of(cf)[i];
    if (is_known(elsewhere.names, view(word))) {
        return conf_invalid(cf, "\"%V\" belongs to the directive \"%*s\"", &word,
                            elsewhere.directive.size(), elsewhere.directive.data());
    }

    if (is_value_of_flag(view(word), names, word_at(cf, i - 1))) {
        return conf_invalid(cf, "invalid parameter \"%V\", \"%V\" before it has no value", &word,
                            &word - 1);
    }

    const auto before = first(view(word), view(word).find('='));
    auto rest = view(word);
    rest.remove_prefix(before.size());

    for (auto &name : names) {
        if (before == bare(name)) {
            return has_value(name) ? value_apart(cf, i, names, name)
                                   : flag_with_value(cf, word, name.text);
        }

        if (is_similar(before, bare(name)) && has_value(name) == (rest.size() > 1)) {
            return did_you_mean(cf, word, bare(name), rest);
        }
    }

    for (auto &name : names) {
        auto words = words_of(cf);
        if (!name.required.empty() && rest.empty()
            && std::none_of(words.begin(), words.end(),
                            [&](auto &other) { return starts_with(view(other), name.text); })) {
            return did_you_mean(cf, word, name.text, before);
        }
    }

    return conf_invalid(cf, "invalid parameter \"%V\"", &word);
}

} // namespace

bool find_params(ngx_conf_t *cf, ngx_uint_t i, Names names, const Elsewhere &elsewhere,
                 Param *params) {
    auto words = words_of(cf);
    for (; i < words.size(); i++) {
        auto &word = words[i];
        auto *name = find_name(names, view(word));
        if (name == names.end()) { return unknown_parameter(cf, i, names, elsewhere); }

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
