/* Copyright (C) the limit_sliding authors */

/*
 * The rule of debts, docs/algorithms.md, over any history that knows nothing of them.
 * A history has
 *
 *     uint64_t left(uint64_t now_ms, uint64_t limit)                   whole units
 *     bool fits(uint64_t now_ms, uint64_t limit, uint64_t cost)
 *     void admit(uint64_t now_ms, uint64_t limit, uint64_t cost)       which fit
 *     void give_back(uint64_t now_ms, uint64_t limit, uint64_t cost)
 */

#pragma once

#include "core/policy/calendar.hpp"
#include "core/policy/policy.hpp"
#include "support.hpp"

#include <algorithm>

template <class History>
struct debt_model_t {
    Policy policy;
    History *history;
    uint64_t units;
    uint64_t from;

    /* The number of the present eighth of a window; of a fixed one, of its first. */
    uint64_t part_at(uint64_t now_ms) const {
        if (policy.algorithm != Algorithm::kFixed) { return now_ms * 8 / policy.window_ms; }

        return 8
               * (policy.calendar == Calendar::kNone
                      ? now_ms / policy.window_ms
                      : calendar_number(policy.calendar, policy.offsets, now_ms));
    }

    uint64_t window_at(uint64_t now_ms) const { return part_at(now_ms) / 8; }

    /* The time at which an eighth begins. */
    uint64_t begin_ms(uint64_t part) const {
        return policy.calendar == Calendar::kNone
                   ? (part * policy.window_ms + 7) / 8
                   : calendar_begin_ms(policy.calendar, policy.offsets, part / 8);
    }

    /* How many windows have paid. */
    uint64_t payments(uint64_t now_ms) const {
        return part_at(now_ms) > from ? (part_at(now_ms) - from) / 8 : 0;
    }

    /* What is owed. */
    uint64_t owed(uint64_t now_ms, uint64_t pace) const {
        uint64_t paying = payments(now_ms);

        return (units + pace - 1) / pace > paying ? units - paying * pace : 0;
    }

    bool fits(uint64_t now_ms, uint64_t pace, uint64_t limit, uint64_t cost) const {
        return history->fits(now_ms, limit, cost + owed(now_ms, pace));
    }

    void admit(uint64_t now_ms, uint64_t pace, uint64_t limit, uint64_t cost) {
        if (cost > 0) {
            history->admit(now_ms, limit, cost + owed(now_ms, pace));
            units = 0;
        }
    }

    /* Returns what is lost: more than 1,000 windows pay, or than numbers hold. */
    uint64_t charge(uint64_t now_ms, uint64_t pace, uint64_t cost) {
        rebase(now_ms, pace);

        uint64_t room = history->left(now_ms, pace);
        uint64_t numbers = kSettledMax - 1 - room;
        uint64_t most = (pace < numbers / 1000 ? 1000 * pace : numbers) + room;
        uint64_t lost = units + cost > most ? units + cost - most : 0;
        lost = lost < cost ? lost : cost;

        uint64_t total = units + cost - lost;
        uint64_t taken = total < room ? total : room;

        if (taken > 0) { history->admit(now_ms, pace, taken); }
        if (room > 0 || units == 0) {
            from = std::max(units == 0 ? 0 : from, new_from(now_ms, pace));
        }

        units = total - taken;
        return lost;
    }

    void give_back(uint64_t now_ms, uint64_t pace, uint64_t limit, uint64_t cost) {
        rebase(now_ms, pace);

        uint64_t less = units < cost ? units : cost;

        units -= less;
        if (cost > less) { history->give_back(now_ms, limit, cost - less); }
    }

    /* The time from which windows pay: the full history has run off. */
    uint64_t new_from(uint64_t now_ms, uint64_t pace) const {
        __extension__ typedef unsigned __int128 wide;
        wide full = (wide)policy.capacity(pace) * policy.window_ms;
        uint64_t ms = policy.algorithm < Algorithm::kTokenBucket
                          ? policy.window_ms
                          : (uint64_t)((full + pace - 1) / pace);

        if (policy.algorithm == Algorithm::kFixed) { return part_at(now_ms) + 8; }

        return ((now_ms + ms) * 8 + policy.window_ms - 1) / policy.window_ms;
    }

private:
    void rebase(uint64_t now_ms, uint64_t pace) {
        uint64_t left = owed(now_ms, pace);

        from += 8 * payments(now_ms);
        units = left;
    }
};
