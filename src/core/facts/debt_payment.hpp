/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/facts/debts.hpp"
#include "core/policy/calendar.hpp"
#include "core/policy/policy.hpp"

namespace limit_sliding {

/* The longest wait in ms for windows that pay a debt, 2,000 years.  1,000 windows, which a charge
 * may owe, are shorter. */
constexpr uint64_t kDebtWaitMaxMs = uint64_t{1} << 46;

/* The debt of a key, which counts as used in addition to the history, and the payment of the
 * debt: each window after `from` pays `pace` units. */
struct DebtPayment {
    uint64_t units = 0; /* units owed now; 0: none */
    uint64_t from = 0;  /* time in eighths of a window (kDebtParts), less than a window ago */
    uint64_t pace = 1;

    /* Returns the ms until history and debt are at most `room` units, if no request consumes.
     * history_ms(n) returns the ms until the history is n units at most.  The debt falls when a
     * window has paid; between these times only the history falls. */
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
    /* Returns how many windows it takes to pay so many units. */
    uint64_t windows(uint64_t paid) const { return (paid + pace - 1) / pace; }

    /* Returns the debt after n windows have paid. */
    uint64_t left(uint64_t n) const { return units - std::min(units, n * pace); }

    /* Returns the ms until the n-th window has paid. */
    uint64_t begins_ms(const Policy &policy, uint64_t now_ms, uint64_t n) const {
        if (n == 0) { return 0; }

        const uint64_t windows = std::min(n, kDebtWaitMaxMs / policy.window_ms);
        const uint64_t part = from + windows * kDebtParts;
        const uint64_t begin_ms
            = policy.calendar == Calendar::kNone
                  ? (part * policy.window_ms + kDebtParts - 1) / kDebtParts
                  : calendar_begin_ms(policy.calendar, policy.offsets, part / kDebtParts);

        return begin_ms - std::min(begin_ms, now_ms);
    }
};

} // namespace limit_sliding
