/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.hpp"
#include "core/policy.hpp"
#include "core/ring.hpp"

namespace limit_sliding {

/*
 * What a key owes, besides what its events count: `rest` units, which are an event
 * from the tick `end` on, but bar others at once.
 *
 * A long debt has a limit, of which as many are owed before these as there are
 * windows to come: first the present one, which ends when the last event is over,
 * then those that are used by as many units each.
 *
 * A debt is one word, in the place of the key's newest event:
 *
 *     generation 2 | 0 | 0 | ticks 38 | rest 22
 *     generation 2 | 0 | 1 | windows 16 | limit 22 | rest 22
 *
 * It takes so many ticks, or windows, from the event before it to `end`.
 */
struct RingDebt {
    uint64_t limit; /* of a long one; 0 */
    uint64_t rest;
    uint64_t begin; /* the tick of the event before */
    uint64_t end;

    bool is_long() const { return limit != 0; }

    /* Returns the debt that this word is, by the tick of the event before it. */
    static RingDebt of(Event event, uint64_t before, const Clock &clock) {
        uint64_t rest = event.word & kUnitMask;

        if ((event.word & kLong) == 0) {
            return {0, rest, before, before + (event.word >> kUnitBits & kTicksMask)};
        }

        return {event.word >> kUnitBits & kUnitMask, rest, before,
                end_of(before, event.word >> kWindowsShift & kWindowsMask, clock)};
    }

    Event event(const Ring &ring, const Clock &clock) const {
        uint64_t ahead
            = is_long() ? kLong | all_windows(clock) << kWindowsShift : (end - begin) << kUnitBits;

        return ring.make_debt(ahead | limit << kUnitBits | rest);
    }

    /* Returns the end of a long debt of so many windows, the first one included. */
    static uint64_t end_of(uint64_t begin, uint64_t windows, const Clock &clock) {
        return begin + windows * clock.span + clock.fading();
    }

    /* Returns how many of its windows have passed, while it has not ended. */
    uint64_t passed(const Clock &clock) const {
        if (!is_long()) { return 0; }

        uint64_t left = (end - clock.tick + clock.span - 1) / clock.span;

        return all_windows(clock) - std::min(all_windows(clock), left);
    }

    /* Returns the units that are owed. */
    uint64_t units(const Clock &clock) const {
        if (!is_long() || end <= clock.tick) { return rest; }

        uint64_t later = std::max<uint64_t>(1, passed(clock));

        return (all_windows(clock) - later) * limit + rest;
    }

    /* Returns the tick at which no more than so many units are owed. */
    uint64_t tick_of(uint64_t room, const Clock &clock) const {
        return end - (room - rest) / limit * clock.span;
    }

    /* Returns for how many windows more than the present one a debt may last after
     * so many.  The word of the event before it has to tell its tick until the
     * debt is over, and its slot's tag to be recent, though nobody may touch the
     * key until then: that is so for an epoch at least. */
    static uint64_t windows_max(uint64_t passed, const Clock &clock) {
        uint64_t epoch = (1ULL << Clock::kEpochShift) / clock.span - 2;
        uint64_t most = std::min(epoch, kWindowsMask - 1);

        return std::min(kWindowsMax - 1, most - std::min(most, passed));
    }

    /* True if a debt may stand behind an event of that tick, as of now: if that
     * tells when all that is used is over. */
    static bool may_follow(uint64_t before, const Clock &clock) {
        return clock.is_log ? before == clock.tick : !clock.is_over(before);
    }

    static constexpr unsigned kUnitBits = 22;
    static constexpr uint64_t kUnitMask = (1ULL << kUnitBits) - 1;
    static constexpr uint64_t kWindowsMax = 1000;

private:
    static constexpr unsigned kLongShift = Event::kValidShift - 1;
    static constexpr uint64_t kLong = 1ULL << kLongShift;
    static constexpr uint64_t kTicksMask = (1ULL << (kLongShift - kUnitBits)) - 1;
    static constexpr unsigned kWindowsShift = 2 * kUnitBits;
    static constexpr uint64_t kWindowsMask = (1ULL << (kLongShift - kWindowsShift)) - 1;

    static_assert(kNarrowMax <= kUnitMask, "a limit");
    static_assert(kWindowMaxMs <= kTicksMask, "a window of a log");

    uint64_t all_windows(const Clock &clock) const { return (end - begin) / clock.span; }
};

} // namespace limit_sliding
