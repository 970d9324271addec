/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>
#include <string_view>

namespace limit_sliding {

constexpr auto kWindowMinMs = 100u;
constexpr auto kWindowMaxMs = 2592000000u; /* 30 d */

/* Windows of the calendar; weeks begin on Mondays. */
enum class Calendar : uint8_t { kNone = 0, kDay, kWeek, kMonth, kYear };

/* Returns "day", "week", "month" or "year"; of kNone, "". */
std::string_view name_of(Calendar calendar);

/* The window that a limit is of. */
struct Window {
    uint64_t ms;       /* its length, kWindowMinMs .. kWindowMaxMs; of a window of the calendar
                          that of most, 1, 7, 30 or 365 days; 0: none is given */
    Calendar calendar; /* kNone: all windows have that length */

    bool is_given() const { return ms != 0; }

    bool operator==(const Window &other) const {
        return ms == other.ms && calendar == other.calendar;
    }
    bool operator!=(const Window &other) const { return !(*this == other); }

    /* Returns the window of a calendar. */
    static Window of(Calendar calendar);

    /* A window as a number of 32 bits: its ms, or the number of its calendar, or 0
     * if none is given.  from_code() returns none for numbers that are no code. */
    uint32_t code() const;
    static Window from_code(uint32_t code);

    /* Parses a time as NGINX does without blanks ("500ms", "10s", "1h30m", "10": seconds) or
     * "day", "week", "month", "year".  Returns false for anything else, or if the
     * length is out of bounds, and leaves the window alone. */
    bool parse(std::string_view text);
};

} // namespace limit_sliding
