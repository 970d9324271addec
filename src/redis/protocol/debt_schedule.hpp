/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/facts/debts.hpp"
#include "core/policy/policy.hpp"

namespace limit_sliding {

/* The longest wait for windows that pay, 2,000 years: 1,000 windows, which a charge may owe,
 * are shorter. */
constexpr uint64_t kDebtWaitMaxMs = uint64_t{1} << 46;

/*
 * The debt of a key, which counts as used beside the units of the history, and its units in
 * windows to come.  Each window after `from` pays `pace` units.
 */
struct DebtSchedule {
    uint64_t units = 0; /* owed now; 0: the key owes nothing */
    uint64_t from = 0;  /* in eighths of a window (kDebtParts), less than a window ago */
    uint64_t pace = 1;

    /* Returns the ms until the units of the history and the debt are `room` at most, if nothing
     * else happens.  history_ms() returns the ms until so many units of the history are left.
     * The debt falls when windows have paid, and in between only the history does. */
    template <class HistoryMs>
    uint64_t wait_ms(const Policy &policy, uint64_t now_ms, uint64_t room,
                     const HistoryMs &history_ms) const {
        uint64_t least = windows(units - std::min(units, room));
        uint64_t most = windows(units);

        while (least < most) {
            const uint64_t n = least + (most - least) / 2;

            if (history_ms(room - left(n)) < begins_ms(policy, now_ms, n + 1)) {
                most = n;
            } else {
                least = n + 1;
            }
        }

        return std::max(begins_ms(policy, now_ms, least), history_ms(room - left(least)));
    }

private:
    /* Returns how many windows pay so much. */
    uint64_t windows(uint64_t paid) const { return (paid + pace - 1) / pace; }

    /* Returns the debt when n windows have paid. */
    uint64_t left(uint64_t n) const { return units - std::min(units, n * pace); }

    /* Returns the ms until the n-th window has paid. */
    uint64_t begins_ms(const Policy &policy, uint64_t now_ms, uint64_t n) const {
        if (n == 0) { return 0; }

        const uint64_t windows = std::min(n, kDebtWaitMaxMs / policy.window_ms);
        const uint64_t begin_ms = debt_part_begin_ms(policy, from + windows * kDebtParts);

        return begin_ms - std::min(begin_ms, now_ms);
    }
};

} // namespace limit_sliding
