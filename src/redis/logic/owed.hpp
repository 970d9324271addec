/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/calendar.hpp"
#include "core/describe.hpp"
#include "core/policy.hpp"

namespace limit_sliding {

/*
 * What a counter or a fixed window owes.  Until part `due` each window, or what
 * is left of one, has `each` units used, and that part has `last` units.
 */
struct Owed {
    uint64_t window_ms;
    uint64_t parts; /* of a window */
    uint64_t due;
    uint64_t each;
    uint64_t last;

    /* Of fixed windows, as in Policy. */
    Calendar calendar;
    const UtcOffsets *offsets;

    uint64_t part_at(uint64_t now_ms) const {
        return calendar == Calendar::kNone ? now_ms * parts / window_ms
                                           : calendar_number(calendar, offsets, now_ms);
    }

    uint64_t begins_ms(uint64_t part) const {
        return calendar == Calendar::kNone ? (part * window_ms + parts - 1) / parts
                                           : calendar_begin_ms(calendar, offsets, part);
    }

    /* Returns how many windows are full yet; 0 from part `due` on. */
    uint64_t windows(uint64_t now_ms) const {
        uint64_t part = part_at(now_ms);

        return part < due ? (due - part + parts - 1) / parts : 0;
    }

    /* The script has no larger numbers, if its clock was set back. */
    Wide used(uint64_t now_ms) const {
        return std::min(Wide{windows(now_ms)} * each + last, Wide{kSettledMax - 1});
    }

    /* Returns when no more than `room` units are used, which is `last` at least,
     * if that is before part `due`; else when that begins. */
    uint64_t falls_ms(uint64_t room) const {
        uint64_t left = std::min((room - last) / each, due / parts);

        return begins_ms(due - left * parts);
    }
};

/* What a bucket owes: `used`, which runs off at `pace` in the first time.  Numbers
 * are in units x w. */
struct OwedBucket {
    uint64_t pace; /* a ms */
    Wide used;
    Wide full; /* all of the bucket that pays at this pace */

    /* Returns the ms until no more than `room` is used, under a limit at which so
     * much runs off in a ms, and whose bucket holds `most`.  Once this bucket is
     * full no more, that limit sets aside what it does not hold, in whole ms. */
    uint64_t wait_ms(Wide room, uint64_t limit, Wide most) const {
        if (room >= full) { return ms_of(used - std::min(used, room), pace); }

        uint64_t paid_ms = ms_of(used - std::min(used, full), pace);
        Wide ran_off = Wide{paid_ms} * pace;
        Wide left = used - std::min(used, ran_off);
        Wide taken = left - (left - std::min(left, most)) / limit * limit;

        return paid_ms + ms_of(taken - std::min(taken, room), limit);
    }

private:
    static uint64_t ms_of(Wide taken, uint64_t pace) {
        return static_cast<uint64_t>((taken + pace - 1) / pace);
    }
};

} // namespace limit_sliding
