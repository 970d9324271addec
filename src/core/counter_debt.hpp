/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/counter_format.hpp"
#include "core/debt.hpp"

namespace limit_sliding {

/*
 * A counter's state that owes.  Its windows have one part, and its kind is 0,
 * which is none of CounterState's:
 *
 *     0 in 4 bits, Debt::window modulo 2^13, a bit that tells the format, and
 *     Debt::pace and rest as the older and the newer count of that format: of the
 *     first or the last kind of one part
 *
 * When its window has begun, it is the state of a counter of one part, which had
 * `pace` requests in the window before.
 */
struct CounterDebt : CounterState {
    static bool is_one(uint64_t state) {
        return state != 0 && state >> (kHeadShift + kPartBits) == 0;
    }

    static uint64_t make(const Debt &debt) {
        bool is_large = std::max(debt.pace, debt.rest) > kCounterKinds[kCounterWhole].limit_max;
        uint64_t counts[] = {debt.pace, debt.rest};
        uint64_t head = (debt.window & kPartMask) << 1 | uint64_t{is_large};

        return head << kCountBits | format(is_large).encode(counts);
    }

    /* Reads a state, by a request of this limit in this window. */
    static Debt read(uint64_t state, uint64_t present, uint64_t limit) {
        const CounterFormat &own = format(is_near(state));
        uint64_t rounded[] = {limit, 0};
        uint64_t counts[2];
        uint64_t passed = age(state, present);

        own.decode(counts_of(state), counts);

        bool is_same = own.oldest(own.encode(rounded)) == counts[0];

        return {passed <= kOldest ? present - std::min(passed, present)
                                  : present + (kPartMask + 1 - passed),
                is_same ? limit : counts[0], counts[1]};
    }

    /* Returns the sum of Debt::pace and rest. */
    static uint64_t total(uint64_t state) { return format(is_near(state)).total(counts_of(state)); }

    /* Returns the kind of one part, from that of a limit on, that has room for the
     * counts of such a debt. */
    static unsigned kind_of(const Debt &debt, unsigned first) {
        return counter_kind_from(std::max(first, kCounterWhole), std::max(debt.pace, debt.rest));
    }

private:
    static const CounterFormat &format(bool is_large) {
        return kCounterFormats.format[is_large ? kCounterKindsLength - 1 : kCounterWhole];
    }
};

} // namespace limit_sliding
