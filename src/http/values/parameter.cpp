/* Copyright (C) the limit_sliding authors */

#include "http/values/parameter.hpp"

#include <algorithm>
#include <optional>

namespace limit_sliding {
namespace {

using Names = Span<const ParamName>;

/* Maximum number of names that an error lists. */
constexpr size_t kListedMax = 8;

bool is_digit(char ch) { return ch >= '0' && ch <= '9'; }

bool has_value(const ParamName &name) { return name.text.back() == '='; }

/* Returns the name without its "=". */
std::string_view bare(const ParamName &name) {
    return first(name.text, name.text.size() - has_value(name));
}

/* Returns the name of the parameter that the word sets, or names.end() if there is none. */
const ParamName *find_name(Names names, std::string_view word) {
    return std::find_if(names.begin(), names.end(), [&](auto &name) {
        return has_value(name) ? word.size() > name.text.size() && starts_with(word, name.text)
                               : word == name.text;
    });
}

/* Returns the i-th word of the directive, or an empty text behind the last word. */
std::string_view word_at(ngx_conf_t *cf, ngx_uint_t i) {
    auto words = words_of(cf);
    return i < words.size() ? view(words[i]) : std::string_view();
}

/* Logs a suggestion for the word, and returns false. */
bool did_you_mean(ngx_conf_t *cf, const ngx_str_t &word, std::string_view name,
                  std::string_view value = {}, const char *how = "") {
    return conf_invalid(cf, "invalid parameter \"%V\", did you mean \"%*s%*s\"%s?", &word,
                        name.size(), name.data(), value.size(), value.data(), how);
}

bool is_off(std::string_view word) {
    return word == "off" || word == "no" || word == "false" || word == "0";
}

bool is_on_or_off(std::string_view word) {
    return is_off(word) || word == "on" || word == "yes" || word == "true" || word == "1";
}

/* Logs an error for a flag with a value, such as "dry_run=on". */
bool flag_with_value(ngx_conf_t *cf, const ngx_str_t &word, std::string_view name,
                     std::string_view value) {
    if (!is_off(value)) { return did_you_mean(cf, word, name); }

    return conf_invalid(cf, "invalid parameter \"%V\", \"%*s\" is off where it is left out", &word,
                        name.size(), name.data());
}

/* Returns true if the word is meant as the value of the flag before it: "dry_run on". */
bool is_value_of_flag(std::string_view word, Names names, std::string_view before) {
    const auto *name = find_name(names, before);
    return name != names.end() && !has_value(*name)
           && (is_on_or_off(word) || starts_with(word, "="));
}

/* Returns the text that joins the word to the value before it: an empty one in "zone=one :1m",
 * "window=10 m", "rate=100 r/s" and "count_status=401, 403", and the separator of a list in
 * "count_status=401 403".  Returns nullopt if the word does not continue the value. */
std::optional<std::string_view> joint_before(std::string_view word, Names names,
                                             std::string_view before) {
    const auto *name = find_name(names, before);
    if (name == names.end() || !has_value(*name) || word.empty()) { return std::nullopt; }

    constexpr std::string_view kUnits[] = {"k", "kb", "m", "mb", "ms", "s", "h", "d"};
    const bool is_unit = std::any_of(std::begin(kUnits), std::end(kUnits),
                                     [&](auto unit) { return is_same_name(word, unit); });
    if (before.back() == ',' || word.front() == ',' || word.front() == ':' || word.front() == '/'
        || (is_digit(before.back()) && (is_unit || starts_with(word, "r/")))) {
        return std::string_view();
    }

    const bool is_listed = !name->separator.empty() && is_digit(word.front());
    return is_listed ? std::optional(name->separator) : std::nullopt;
}

/* Logs an error for a missing or separate value: "zone = a", "zone= a", "zone =a", "zone a". */
bool value_apart(ngx_conf_t *cf, ngx_uint_t i, Names names, const ParamName &name) {
    auto &word = words_of(cf)[i];
    auto value = word_at(cf, i + 1);
    if (value == "=") {
        value = word_at(cf, i + 2);
    } else if (!value.empty() && value.front() == '=') {
        value.remove_prefix(1);
    }

    if (value.empty() || find_name(names, value) != names.end()) {
        return conf_invalid(cf, "invalid parameter \"%V\", it needs a value", &word);
    }

    return did_you_mean(cf, word, name.text, value, " without spaces");
}

/* Logs an unknown word, with the list of names if they are few, and returns false. */
bool none_of_names(ngx_conf_t *cf, const ngx_str_t &word, Names names) {
    if (names.size() > kListedMax) { return conf_invalid(cf, "invalid parameter \"%V\"", &word); }

    u_char text[NGX_MAX_CONF_ERRSTR];
    u_char *end = text;
    for (auto &name : names) {
        const char *separator = &name == names.begin()     ? ""
                                : &name + 1 == names.end() ? " or "
                                                           : ", ";
        end = ngx_slprintf(end, text + sizeof(text), "%s\"%*s\"", separator, name.text.size(),
                           name.text.data());
    }

    return conf_invalid(cf, "invalid parameter \"%V\", it must be %*s", &word, end - text, text);
}

/* Logs an unknown word with a suggestion, and returns false. */
bool unknown_parameter(ngx_conf_t *cf, ngx_uint_t i, Names names, const Elsewhere &elsewhere) {
    auto &word = words_of(cf)[i];
    if (is_value_of_flag(view(word), names, word_at(cf, i - 1))) {
        return conf_invalid(cf, "invalid parameter \"%V\", \"%V\" before it has no value", &word,
                            &word - 1);
    }

    if (const auto joint = joint_before(view(word), names, word_at(cf, i - 1))) {
        const auto rest = join(cf->pool, *joint, view(word));
        return did_you_mean(cf, word, word_at(cf, i - 1), view(rest), " without spaces");
    }

    /* "rate:1r/s" is read as "rate=1r/s" */
    const auto before = first(view(word), view(word).find_first_of("=:"));
    auto value = view(word);
    value.remove_prefix(std::min(before.size() + 1, value.size()));
    const bool is_bare = view(word).find('=') == std::string_view::npos;

    for (auto &name : elsewhere.names) {
        if (is_similar(before, bare(name))) {
            return conf_invalid(cf, "\"%V\" belongs to the directive \"%*s\"", &word,
                                elsewhere.directive.size(), elsewhere.directive.data());
        }
    }

    for (auto &name : names) {
        if (before == bare(name) && !has_value(name)) {
            return flag_with_value(cf, word, name.text, value);
        }

        if (before == bare(name) && value.empty()) { return value_apart(cf, i, names, name); }

        if (is_similar(before, bare(name)) && has_value(name) != value.empty()) {
            return did_you_mean(cf, word, name.text, value);
        }
    }

    for (auto &name : names) {
        auto words = words_of(cf);
        if (!name.required.empty() && is_bare
            && std::none_of(words.begin(), words.end(),
                            [&](auto &other) { return starts_with(view(other), name.text); })) {
            return did_you_mean(cf, word, name.text, view(word));
        }
    }

    for (auto &name : names) {
        if (is_misspelt(before, bare(name)) && has_value(name) != value.empty()) {
            return did_you_mean(cf, word, name.text, value);
        }
    }

    return none_of_names(cf, word, names);
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
        if (has_value(*name) && (*param.text.data == '"' || *param.text.data == '\'')) {
            return param.invalid("invalid parameter \"%V\", a quote must be before \"%*s\"", skip,
                                 name->text.data());
        }
    }

    const auto is_given = [&](std::string_view text) {
        return std::any_of(names.begin(), names.end(), [&](auto &name) {
            return name.text == text && params[&name - names.begin()].word.len != 0;
        });
    };

    for (auto &name : names) {
        if (!name.required.empty() && !is_given(name.text) && !is_given(name.instead)) {
            const ngx_str_t required = to_str(name.required), instead = to_str(name.instead);
            const char *format = instead.len == 0 ? "\"%V\" must have \"%V\" parameter"
                                                  : "\"%V\" must have \"%V\" or \"%V\" parameter";
            return conf_invalid(cf, format, &words[0], &required, &instead);
        }
    }

    return true;
}

} // namespace limit_sliding
