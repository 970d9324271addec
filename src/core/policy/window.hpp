/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>
#include <string_view>

namespace limit_sliding {

constexpr auto kWindowMinMs = 100u;
constexpr auto kWindowMaxMs = 2592000000u; /* 30 d */

/* Windows of the calendar.  Weeks begin on Mondays. */
enum class Calendar : uint8_t { kNone = 0, kDay, kWeek, kMonth, kYear };

/* Returns "day", "week", "month" or "year"; "" for kNone. */
std::string_view name_of(Calendar calendar);

/* The window of a limit. */
struct Window {
    uint64_t ms;       /* length, kWindowMinMs .. kWindowMaxMs; for a calendar its usual length of
                          1, 7, 30 or 365 days; 0: not given */
    Calendar calendar; /* kNone: all windows have the length `ms` */

    bool is_given() const { return ms != 0; }

    bool operator==(const Window &other) const {
        return ms == other.ms && calendar == other.calendar;
    }
    bool operator!=(const Window &other) const { return !(*this == other); }

    static Window of(Calendar calendar);

    /* Convert a window to and from a number: the length `ms`, the value of `calendar` (1 .. 4) if
     * the window has one, or 0 if the window is not given.  For all other numbers, from_code()
     * returns a window that is not given. */
    uint32_t code() const {
        return calendar != Calendar::kNone ? static_cast<uint32_t>(calendar)
                                           : static_cast<uint32_t>(ms);
    }
    static Window from_code(uint32_t code);

    /* Parses "day", "week", "month", "year", or a time without blanks in NGINX's syntax ("500ms",
     * "1h30m", "10").  Returns false for other texts and for lengths out of bounds; the window
     * then keeps its value. */
    bool parse(std::string_view text);
};

} // namespace limit_sliding
