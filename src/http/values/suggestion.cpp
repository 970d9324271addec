/* Copyright (C) the limit_sliding authors */

#include "http/values/suggestion.hpp"

#include "core/policy/window.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* A unit of time, its name, and another word for it. */
struct Unit {
    std::string_view unit;
    std::string_view name;
    std::string_view other;
};

constexpr Unit kUnits[] = {
    {"ms", "millisecond", "msec"}, {"s", "second", "s"},  {"m", "minute", "m"},
    {"h", "hour", "hr"},           {"d", "day", "daily"}, {"w", "week", "wk"},
};

/* Units of calendar windows, which have no fixed length. */
constexpr Unit kCalendarUnits[] = {{"month", "month", "mo"}, {"year", "year", "y"}};

/* Units of sizes.  NGINX knows no gigabytes in a zone's size. */
constexpr Unit kSizes[] = {{"k", "kib", "kb"}, {"m", "mib", "mb"}, {"g", "gib", "gb"}};

/* Larger sizes get no suggestion. */
constexpr ngx_int_t kGigabytesMax = 1024;

/* Minimum length of an abbreviated name: "min", "sec". */
constexpr size_t kNameMin = 3;

/* Returns the unit of a word, such as "m" for "M", "min" and "minutes", or an empty text. */
template <size_t N>
std::string_view unit_of(const Unit (&units)[N], std::string_view word) {
    for (const auto &[unit, name, other] : units) {
        if (is_same_name(word, unit) || is_same_name(word, other)) { return unit; }
    }

    for (std::string_view suffix : {"s", "S", "ly"}) {
        if (cut_suffix(&word, suffix)) { break; }
    }

    for (const auto &[unit, name, other] : units) {
        if (is_same_name(word, other)
            || (word.size() >= kNameMin && is_same_name(word, first(name, word.size())))) {
            return unit;
        }
    }

    return {};
}

/* Removes and returns the leading digits of the text. */
std::string_view cut_digits(std::string_view &text) {
    const auto digits = first(text, text.find_first_not_of("0123456789"));
    text.remove_prefix(digits.size());
    return digits;
}

/* Returns the joined texts, or an empty text if there is no memory. */
template <class... Texts>
std::string_view joined(ngx_pool_t *pool, const Texts &...texts) {
    const auto text = join(pool, texts...);
    return text.data != nullptr ? view(text) : std::string_view();
}

/* Returns the end of the error, or an empty text if there is no suggestion. */
ngx_str_t guess(ngx_pool_t *pool, std::string_view wrong, std::string_view right) {
    if (right.empty() || right == wrong) { return {}; }

    return to_str(joined(pool, ", did you mean \"", right, "\"?"));
}

/* Converts a text such as "10seconds" to NGINX's "10s".  Returns an empty text if it cannot. */
std::string_view time_of(ngx_pool_t *pool, std::string_view text) {
    const auto number = cut_digits(text);
    const auto unit = unit_of(kUnits, text);
    return unit.empty() ? unit : joined(pool, number.empty() ? "1" : number, unit);
}

/* Returns the calendar window of a text, such as "month" for "1months", or an empty text. */
std::string_view calendar_of(std::string_view text) {
    const auto number = cut_digits(text);
    return number.empty() || number == "1" ? unit_of(kCalendarUnits, text) : std::string_view();
}

/* Removes the text between a rate's number and its unit, such as "r/"; false: there is none. */
bool cut_per(std::string_view &text) {
    for (std::string_view per : {"r/", "/", "rp", "qp", "per", "req/", "requests/"}) {
        if (is_same_name(first(text, per.size()), per)) {
            text.remove_prefix(per.size());
            return true;
        }
    }

    return false;
}

} // namespace

ngx_str_t suggested_time(ngx_pool_t *pool, std::string_view text) {
    return guess(pool, text, time_of(pool, text));
}

ngx_str_t suggested_window(ngx_pool_t *pool, std::string_view text) {
    const auto calendar = calendar_of(text);
    return calendar.empty() ? suggested_time(pool, text) : guess(pool, text, calendar);
}

ngx_str_t suggested_size(ngx_pool_t *pool, std::string_view text) {
    auto word = text;
    const auto number = cut_digits(word);
    const auto unit = unit_of(kSizes, word);
    if (number.empty() || unit.empty()) { return {}; }

    if (unit != "g") { return guess(pool, text, joined(pool, number, unit)); }

    const auto n = ngx_atoi(bytes(number), number.size());
    if (n < 1 || n > kGigabytesMax) { return {}; }

    u_char megabytes[NGX_INT_T_LEN + 1];
    const auto *end = ngx_sprintf(megabytes, "%im", n * 1024);
    return guess(pool, text, view(megabytes, end - megabytes));
}

ngx_str_t suggested_rate(ngx_pool_t *pool, std::string_view text) {
    auto unit = text;
    const auto number = cut_digits(unit);
    if (number.empty() || !cut_per(unit)) { return {}; }

    const auto known = unit_of(kUnits, unit);
    for (std::string_view per : {"s", "m", "h", "d"}) {
        if (known == per) { return guess(pool, text, joined(pool, number, "r/", per)); }
    }

    const auto calendar = calendar_of(unit);
    const auto window = calendar.empty() ? time_of(pool, unit) : calendar;
    Window parsed = {};
    if (!parsed.parse(window)) { return {}; }

    return guess(pool, text, joined(pool, number, "/", window));
}

} // namespace limit_sliding
