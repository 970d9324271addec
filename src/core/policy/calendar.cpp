/* Copyright (C) the limit_sliding authors */

#include "core/policy/calendar.hpp"

#include <algorithm>
#include <cassert>

#include "core/policy/policy.hpp"

namespace limit_sliding {

namespace {

constexpr int64_t kDayMs = 24 * 60 * 60 * 1000;

/* Days from Monday to the first day of 1970, a Thursday. */
constexpr int64_t kDaysOfWeekBefore = 3;

/* Months are counted from March of the year 0 of the Gregorian calendar, so that a leap day ends
 * its year.  The constants are the days and months from that March to January 1970. */
constexpr int64_t kDaysBefore = 719468;
constexpr int64_t kMonthsBefore = 1969 * 12 + 10;

constexpr int64_t kDaysOf400Years = 146097;

/* Returns the number of days in the first `years` years, counted from March of the year 0. */
int64_t days_of_years(int64_t years) { return 365 * years + years / 4 - years / 100 + years / 400; }

/* Returns the month of a day; both are counted from January 1970. */
int64_t month_of_day(int64_t day) {
    int64_t since = day + kDaysBefore;
    int64_t rest = since % kDaysOf400Years;
    int64_t years = (rest - rest / 1460 + rest / 36524 - rest / (kDaysOf400Years - 1)) / 365;
    int64_t day_of_year = rest - days_of_years(years);
    int64_t month = (5 * day_of_year + 2) / 153;
    return (since / kDaysOf400Years * 400 + years) * 12 + month - kMonthsBefore;
}

int64_t number_of_day(Calendar kind, int64_t day) {
    switch (kind) {
    case Calendar::kWeek:
        return (day + kDaysOfWeekBefore) / 7;
    case Calendar::kMonth:
        return month_of_day(day);
    case Calendar::kYear:
        return month_of_day(day) / 12;
    default:
        return day;
    }
}

int64_t first_day(Calendar kind, int64_t number) {
    switch (kind) {
    case Calendar::kWeek:
        return number * 7 - kDaysOfWeekBefore;
    case Calendar::kMonth:
        return first_day_of_month(number);
    case Calendar::kYear:
        return first_day_of_month(number * 12);
    default:
        return number;
    }
}

} // namespace

int64_t first_day_of_month(int64_t month) {
    int64_t since = month + kMonthsBefore;
    return days_of_years(since / 12) + (since % 12 * 153 + 2) / 5 - kDaysBefore;
}

UtcOffsets UtcOffsets::of(UtcOffset *offsets, size_t n) {
    assert(n >= 1);

    int64_t reached_ms = 0;

    for (size_t i = 0; i < n; i++) {
        if (i != 0) {
            reached_ms = std::max(reached_ms, offsets[i].since_ms + offsets[i - 1].offset_ms - 1);
        }

        offsets[i].reached_ms = reached_ms;
    }

    return {offsets, n};
}

size_t UtcOffsets::at(int64_t utc_ms) const {
    const UtcOffset *later
        = std::upper_bound(offsets + 1, offsets + n, utc_ms,
                           [](int64_t ms, const UtcOffset &o) { return ms < o.since_ms; });
    return static_cast<size_t>(later - offsets) - 1;
}

uint64_t UtcOffsets::local_ms(uint64_t utc_ms) const {
    auto now_ms = static_cast<int64_t>(utc_ms);
    const UtcOffset &present = offsets[at(now_ms)];
    return static_cast<uint64_t>(std::max(now_ms + present.offset_ms, present.reached_ms));
}

uint64_t UtcOffsets::utc_ms(int64_t local_ms) const {
    size_t i = at(local_ms - 2 * kDayMs);
    while (i + 1 < n && offsets[i + 1].reached_ms < local_ms) {
        i++;
    }
    int64_t then_ms = local_ms - offsets[i].offset_ms;
    if (i != 0) { then_ms = std::max(then_ms, offsets[i].since_ms); }
    return static_cast<uint64_t>(std::max<int64_t>(then_ms, 0));
}

uint64_t calendar_number(Calendar kind, const UtcOffsets *offsets, uint64_t utc_ms) {
    uint64_t local_ms = offsets != nullptr ? offsets->local_ms(utc_ms) : utc_ms;
    return static_cast<uint64_t>(number_of_day(kind, static_cast<int64_t>(local_ms) / kDayMs));
}

uint64_t calendar_begin_ms(Calendar kind, const UtcOffsets *offsets, uint64_t number) {
    int64_t local_ms = first_day(kind, static_cast<int64_t>(number)) * kDayMs;
    if (number == 0) { return 0; }
    return offsets != nullptr ? offsets->utc_ms(local_ms) : static_cast<uint64_t>(local_ms);
}

CalendarWindow calendar_window(Calendar kind, const UtcOffsets *offsets, uint64_t utc_ms) {
    uint64_t number = calendar_number(kind, offsets, utc_ms);
    return {number, calendar_begin_ms(kind, offsets, number),
            calendar_begin_ms(kind, offsets, number + 1)};
}

uint64_t Policy::length_ms(uint64_t now_ms) const {
    return calendar == Calendar::kNone ? window_ms
                                       : calendar_window(calendar, offsets, now_ms).length_ms();
}

uint64_t Policy::window_number(uint64_t now_ms) const {
    return calendar == Calendar::kNone ? now_ms / window_ms
                                       : calendar_number(calendar, offsets, now_ms);
}

} // namespace limit_sliding
