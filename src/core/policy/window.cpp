/* Copyright (C) the limit_sliding authors */

#include "core/policy/window.hpp"

#include <charconv>

namespace limit_sliding {

namespace {

constexpr uint64_t kDayMs = 24 * 60 * 60 * 1000;

constexpr std::string_view kCalendars[] = {"", "day", "week", "month", "year"};
constexpr uint64_t kDays[] = {0, 1, 7, 30, 365};

struct Unit {
    std::string_view name;
    uint64_t ms;
};

/* Units, the longest first; but "ms" must come before its prefix "m". */
constexpr Unit kUnits[] = {
    {"y", 365 * kDayMs}, {"M", 30 * kDayMs}, {"w", 7 * kDayMs}, {"d", kDayMs},
    {"h", 3600 * 1000},  {"ms", 1},          {"m", 60 * 1000},  {"s", 1000},
};

/* Longer than any window, and short enough that sums do not overflow. */
constexpr uint64_t kMostMs = uint64_t{1} << 40;

/* Removes a number from the begin of the text.  Returns false if there is none up to kMostMs. */
bool cut_number(std::string_view *text, uint64_t *n) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *n);
    text->remove_prefix(static_cast<size_t>(end - text->data()));
    return error == std::errc() && *n <= kMostMs;
}

/* Removes the name of a unit.  Returns its length in ms; 0 if there is none below `most_ms`. */
uint64_t cut_unit(std::string_view *text, uint64_t most_ms) {
    for (const Unit &unit : kUnits) {
        const size_t size = unit.name.size();
        if (text->size() >= size && std::string_view(text->data(), size) == unit.name) {
            text->remove_prefix(size);
            return unit.ms < most_ms ? unit.ms : 0;
        }
    }
    return 0;
}

/* Returns the length of a time in ms; 0 if the text is no time. */
uint64_t parse_ms(std::string_view text) {
    uint64_t all_ms = 0;
    uint64_t unit_ms = UINT64_MAX;

    do {
        uint64_t n;
        if (!cut_number(&text, &n)) { return 0; }

        if (text.empty()) {
            unit_ms = unit_ms > 1000 ? 1000 : 0;
        } else {
            unit_ms = cut_unit(&text, unit_ms);
        }

        if (unit_ms == 0 || n > kMostMs / unit_ms) { return 0; }

        all_ms += n * unit_ms;
    } while (!text.empty());

    return all_ms;
}

} // namespace

std::string_view name_of(Calendar calendar) { return kCalendars[static_cast<unsigned>(calendar)]; }

Window Window::of(Calendar calendar) {
    return {kDays[static_cast<unsigned>(calendar)] * kDayMs, calendar};
}

Window Window::from_code(uint32_t code) {
    if (code <= static_cast<uint32_t>(Calendar::kYear)) { return of(static_cast<Calendar>(code)); }
    return code >= kWindowMinMs && code <= kWindowMaxMs ? Window{code, Calendar::kNone} : Window{};
}

bool Window::parse(std::string_view text) {
    for (unsigned i = 1; i <= static_cast<unsigned>(Calendar::kYear); i++) {
        if (text == kCalendars[i]) {
            *this = of(static_cast<Calendar>(i));
            return true;
        }
    }

    uint64_t parsed_ms = parse_ms(text);
    if (parsed_ms < kWindowMinMs || parsed_ms > kWindowMaxMs) { return false; }

    *this = {parsed_ms, Calendar::kNone};
    return true;
}

} // namespace limit_sliding
