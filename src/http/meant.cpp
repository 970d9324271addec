/* Copyright (C) the limit_sliding authors */

#include "http/meant.hpp"

#include "core/window.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* A unit of time, and words for it beside those that its name begins with. */
struct Unit {
    std::string_view unit;
    std::string_view name;
    std::string_view other;
};

constexpr Unit kUnits[] = {
    {"ms", "millisecond", "msec"}, {"s", "second", "s"}, {"m", "minute", "m"},
    {"h", "hour", "hr"},           {"d", "day", "d"},    {"w", "week", "wk"},
};

/* The most that are guessed at: no zone has so many. */
constexpr ngx_int_t kGigabytesMax = 1024;

/* The fewest letters of a name: "min", "sec". */
constexpr size_t kNameMin = 3;

/* Returns the unit that a word stands for, such as "m" for "M", "min" and
 * "minutes"; empty: none. */
std::string_view unit_of(std::string_view word) {
    for (const auto &[unit, name, other] : kUnits) {
        if (is_same_name(word, unit)) { return unit; }
    }

    if (!cut_suffix(&word, "s")) { cut_suffix(&word, "S"); }

    for (const auto &[unit, name, other] : kUnits) {
        if (is_same_name(word, other)
            || (word.size() >= kNameMin && is_same_name(word, first(name, word.size())))) {
            return unit;
        }
    }

    return {};
}

/* Removes the digits that the text begins with, and returns them. */
std::string_view cut_digits(std::string_view &text) {
    const auto digits = first(text, text.find_first_not_of("0123456789"));
    text.remove_prefix(digits.size());
    return digits;
}

/* Returns the guess, unless it is what was wrong, or without a number. */
ngx_str_t guess(ngx_pool_t *pool, std::string_view wrong, std::string_view number,
                std::string_view rest) {
    const auto text = join(pool, number, rest);
    if (number.empty() || text.data == nullptr || view(text) == wrong) { return {}; }

    const auto end = join(pool, ", did you mean \"", view(text), "\"?");
    return end.data != nullptr ? end : ngx_str_t{};
}

/* Removes what stands between the number of a rate and its unit, as "r/". */
bool cut_per(std::string_view &text) {
    for (std::string_view per : {"r/", "/", "rp", "req/", "requests/"}) {
        if (cut_prefix(&text, per)) { return true; }
    }

    return false;
}

} // namespace

ngx_str_t meant_time(ngx_pool_t *pool, std::string_view text) {
    auto word = text;
    const auto number = cut_digits(word);
    const auto unit = unit_of(word);
    if (unit.empty()) { return {}; }

    return guess(pool, text, number.empty() ? "1" : number, unit);
}

ngx_str_t meant_size(ngx_pool_t *pool, std::string_view text) {
    auto unit = text;
    const auto number = cut_digits(unit);
    if (is_same_name(unit, "k") || is_same_name(unit, "kb") || is_same_name(unit, "kib")) {
        return guess(pool, text, number, "k");
    }

    if (is_same_name(unit, "m") || is_same_name(unit, "mb") || is_same_name(unit, "mib")) {
        return guess(pool, text, number, "m");
    }

    if (is_same_name(unit, "g") || is_same_name(unit, "gb") || is_same_name(unit, "gib")) {
        u_char megabytes[NGX_INT_T_LEN];
        const auto n = ngx_atoi(bytes(number), number.size());
        if (n < 1 || n > kGigabytesMax) { return {}; }

        const auto *end = ngx_sprintf(megabytes, "%i", n * 1024);
        return guess(pool, text, view(megabytes, end - megabytes), "m");
    }

    return {};
}

ngx_str_t meant_rate(ngx_pool_t *pool, std::string_view text) {
    auto unit = text;
    const auto number = cut_digits(unit);
    if (number.empty() || !cut_per(unit)) { return {}; }

    const auto known = unit_of(unit);
    for (std::string_view per : {"s", "m", "h", "d"}) {
        if (known == per) { return guess(pool, text, number, view(join(pool, "r/", per))); }
    }

    Window window = {};
    if (!window.parse(unit)) { return {}; }

    const auto end = join(pool, ", did you mean \"rate=", number, "\" with \"window=", unit,
                          "\" of the zone?");
    return end.data != nullptr ? end : ngx_str_t{};
}

} // namespace limit_sliding
