/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/window.hpp"

namespace limit_sliding {

/* An offset of local time from UTC. */
struct UtcOffset {
    int64_t since_ms;   /* from when on it holds, in UTC, since 1970 */
    int64_t offset_ms;  /* what is added to UTC, less than two days */
    int64_t reached_ms; /* the latest local time before; set by UtcOffsets */
};

/*
 * The offsets of a time zone in the order of their times.  The first one holds
 * before its time, too, and the last one for good.
 *
 * Local time goes back when a clock is put back, but windows do not, even if that
 * happens just after midnight: local time is taken to stand still until the clock
 * shows a later one.
 */
struct UtcOffsets {
    const UtcOffset *offsets;
    size_t n; /* at least 1 */

    /* Makes them of n >= 1 offsets, which are to live as long. */
    static UtcOffsets of(UtcOffset *offsets, size_t n);

    /* Finds those of two times and between, the first `most` >= 1 of them, in
     * steps in which a zone changes its offset once.  offset_ms_at() returns that
     * of a time in ms since 1970, of whole seconds. */
    template <class OffsetAt>
    static UtcOffsets find(int64_t from_ms, int64_t to_ms, const OffsetAt &offset_ms_at,
                           UtcOffset *offsets, size_t most);

    /* Returns those that hold from one time to another. */
    UtcOffsets between(int64_t from_ms, int64_t to_ms) const {
        size_t first = at(from_ms);

        return {offsets + first, at(to_ms) - first + 1};
    }

    /* Returns the local time, in ms since 1970, and 0 before. */
    uint64_t local_ms(uint64_t utc_ms) const;

    /* Returns the first time when that local time, or a later one, is reached. */
    uint64_t utc_ms(int64_t local_ms) const;

private:
    /* Returns the index of the one that holds at a time. */
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

/* A window of a calendar. */
struct CalendarWindow {
    uint64_t number;   /* from 0 on, which has the first ms of 1970 */
    uint64_t begin_ms; /* in UTC, since 1970 */
    uint64_t end_ms;

    uint64_t length_ms() const { return end_ms - begin_ms; }
};

/* Return the number of the window of a kind, not kNone, at a time; when that of a
 * number begins; and both.  Without offsets the calendar is that of UTC. */
uint64_t calendar_number(Calendar kind, const UtcOffsets *offsets, uint64_t utc_ms);
uint64_t calendar_begin_ms(Calendar kind, const UtcOffsets *offsets, uint64_t number);
CalendarWindow calendar_window(Calendar kind, const UtcOffsets *offsets, uint64_t utc_ms);

} // namespace limit_sliding
