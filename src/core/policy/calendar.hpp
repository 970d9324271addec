/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/policy/window.hpp"

namespace limit_sliding {

/* An offset of local time from UTC. */
struct UtcOffset {
    int64_t since_ms;   /* begin of the offset, in ms of UTC since 1970 */
    int64_t offset_ms;  /* ms added to UTC; less than two days */
    int64_t reached_ms; /* latest local time that clocks show before `since_ms`, in ms since 1970;
                           0 in the first offset; set by UtcOffsets::of() */
};

/*
 * The offsets of a time zone in order of time.  The first offset holds before its begin as well,
 * and the last one forever.
 *
 * A local clock that is put back must not reopen a window that has just ended.  So the local time
 * stands still until the clock has caught up.
 */
struct UtcOffsets {
    const UtcOffset *offsets;
    size_t n; /* at least 1 */

    /* Sets `reached_ms` in n >= 1 offsets.  The offsets must live as long as the result. */
    static UtcOffsets of(UtcOffset *offsets, size_t n);

    /* Fills `offsets` with at most `most` >= 1 offsets that hold between two times.  The time zone
     * must change its offset at most once a day.  offset_ms_at(ms) returns the offset at a UTC time
     * in ms since 1970, a multiple of 1000. */
    template <class OffsetAt>
    static UtcOffsets find(int64_t from_ms, int64_t to_ms, const OffsetAt &offset_ms_at,
                           UtcOffset *offsets, size_t most);

    /* Returns the offsets that hold between two times. */
    UtcOffsets between(int64_t from_ms, int64_t to_ms) const {
        size_t first = at(from_ms);
        return {offsets + first, at(to_ms) - first + 1};
    }

    /* Returns the local time in ms since 1970; 0 before 1970. */
    uint64_t local_ms(uint64_t utc_ms) const;

    /* Returns the first UTC time in ms at which the local time is reached. */
    uint64_t utc_ms(int64_t local_ms) const;

private:
    /* Returns the index of the offset that holds at a time. */
    size_t at(int64_t utc_ms) const;
};

template <class OffsetAt>
UtcOffsets UtcOffsets::find(int64_t from_ms, int64_t to_ms, const OffsetAt &offset_ms_at,
                            UtcOffset *offsets, size_t most) {
    constexpr int64_t kSecondMs = 1000;
    constexpr int64_t kStepMs = 24 * 60 * 60 * kSecondMs;
    int64_t last_ms = from_ms - from_ms % kSecondMs;
    size_t n = 1;

    offsets[0] = {last_ms, offset_ms_at(last_ms), 0};

    while (last_ms < to_ms && n < most) {
        int64_t next_ms = last_ms + kStepMs;
        int64_t offset_ms = offset_ms_at(next_ms);

        if (offset_ms != offsets[n - 1].offset_ms) {
            while (next_ms - last_ms > kSecondMs) {
                int64_t half_ms = last_ms + (next_ms - last_ms) / (2 * kSecondMs) * kSecondMs;

                (offset_ms_at(half_ms) == offset_ms ? next_ms : last_ms) = half_ms;
            }

            offsets[n++] = {next_ms, offset_ms, 0};
        }

        last_ms = next_ms;
    }

    return of(offsets, n);
}

struct CalendarWindow {
    uint64_t number;   /* window 0 contains the first ms of 1970 */
    uint64_t begin_ms; /* ms of UTC since 1970 */
    uint64_t end_ms;

    uint64_t length_ms() const { return end_ms - begin_ms; }
};

/* Returns the first day of a month.  Both are counted from January 1970. */
int64_t first_day_of_month(int64_t month);

/* Return the number of the window at a time, the begin of a window in ms of UTC, and both.  `kind`
 * must not be kNone.  Without offsets the calendar is that of UTC. */
uint64_t calendar_number(Calendar kind, const UtcOffsets *offsets, uint64_t utc_ms);
uint64_t calendar_begin_ms(Calendar kind, const UtcOffsets *offsets, uint64_t number);
CalendarWindow calendar_window(Calendar kind, const UtcOffsets *offsets, uint64_t utc_ms);

} // namespace limit_sliding
