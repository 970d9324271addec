/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/bucket_state.hpp"
#include "core/debt.hpp"
#include "core/describe.hpp"

namespace limit_sliding {

/*
 * A bucket's state that owes: when, at the pace of the charge's limit, the bucket
 * will be just full.
 *
 *     the code of that limit in 13 bits, and the time in 46: 34 or fewer of whole
 *     ms, the others of their fraction
 *
 * These are the bits of a state but for its form, which is kWhole, and the highest
 * bit of that form's value, which no number of requests reaches.  The fraction is
 * rounded down, by less than a request as long as no more than 2^22 requests run
 * off in a ms.
 *
 * An object is one state at one moment, under one limit.
 */
class BucketDebt : protected BucketState {
protected:
    BucketDebt(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : BucketState(policy, limit), now_ms_(now_ms) {}

    /* True for a state that owes, or has owed until its bucket was just full. */
    bool owes(uint64_t state) const {
        return (state >> (value_bits() - 1) & ((2u << kFormBits) - 1)) == (kWhole << 1 | 1);
    }

    /* A state that owes, as it was read. */
    struct Debt {
        uint64_t pace;   /* the limit of the charge */
        uint64_t full;   /* of a bucket under it */
        uint64_t ahead;  /* until it is just full, in fractions of a ms; 0: it was
                            so before, or is now, */
        uint64_t passed; /* since then */
    };

    /* True if the state owes.  One that does no more is replaced by what it is. */
    bool see_debt(uint64_t *state, Debt *debt) const {
        if (!owes(*state)) { return false; }

        *debt = read_debt(*state);

        if (debt->ahead != 0) { return true; }

        *state = paid(*debt);

        return false;
    }

    Debt read_debt(uint64_t state) const {
        uint64_t low_bits = value_bits() - 1;
        uint64_t high = state >> (value_bits() + kFormBits);
        uint64_t value = high << low_bits | (state & ((1ULL << low_bits) - 1));
        uint64_t pace = LimitCode::limit(value >> kFullBits, limit_);
        uint64_t ahead = (value - (now_ms_ << fraction_bits())) & kFullMask;
        bool is_ahead = ahead <= kFullMask / 4 + 1;

        return {pace, has_burst() ? full() : pace * window_ms_, is_ahead ? ahead : 0,
                is_ahead ? 0 : (kFullMask + 1 - ahead)};
    }

    /* Returns what such a key has used, x w. */
    Wide used(const Debt &debt) const {
        return debt.full + fractions(Wide{debt.ahead} * debt.pace + fraction_mask());
    }

    /* Returns the ms until no more than `room`, x w, is used, if that is before the
     * bucket is just full; else until then. */
    uint64_t wait_ms(const Debt &debt, uint64_t room) const {
        Wide early = room > debt.full ? (Wide{room - debt.full} << fraction_bits()) / debt.pace : 0;

        return early >= debt.ahead ? 0 : whole_ms(debt.ahead - static_cast<uint64_t>(early));
    }

    /* Returns the state that the key will have, or has since, when the bucket is
     * full no more: as of the first whole ms then. */
    uint64_t paid(const Debt &debt) const {
        uint64_t time = debt.ahead != 0 ? now_ms_ + whole_ms(debt.ahead)
                                        : now_ms_ - (debt.passed >> fraction_bits());
        uint64_t fraction = (debt.ahead != 0 ? 0 - debt.ahead : debt.passed) & fraction_mask();
        uint64_t ran_off = fraction * debt.pace >> fraction_bits();

        return pack(time & time_mask(), class_of_pace(debt.pace),
                    debt.full - std::min(debt.full, ran_off));
    }

    /* Returns the state of a key that has used so much, x w, more than full().
     * `lost` are the requests that exceed what a key may owe. */
    uint64_t owe(Wide taken, uint64_t *lost) const {
        Wide most = Wide{limit_} * std::min(kBucketDebtWindows * window_ms_, kBucketDebtMs);
        Wide owed = taken - full();
        Wide more = owed - std::min(owed, most);

        *lost = static_cast<uint64_t>((more + window_ms_ - 1) / window_ms_);
        owed -= std::min(owed, Wide{*lost} * window_ms_);

        Wide ahead = (owed << fraction_bits()) / limit_;
        uint64_t time = ((now_ms_ << fraction_bits()) + static_cast<uint64_t>(ahead)) & kFullMask;
        uint64_t value = LimitCode::of(limit_) << kFullBits | time;
        uint64_t low_bits = value_bits() - 1;
        uint64_t form = value >> low_bits << kFormBits | kWhole;

        return (form << 1 | 1) << low_bits | (value & ((1ULL << low_bits) - 1));
    }

    /* Returns the state of a key that has used so much. */
    uint64_t settled(Wide taken, uint64_t *lost) const {
        *lost = 0;

        return taken > full()
                   ? owe(taken, lost)
                   : pack(now_ms_ & time_mask(), class_of_limit(), static_cast<uint64_t>(taken));
    }

    /* A key that owes under one limit may have room under a higher one.  The cost is
     * not 0. */
    [[gnu::noinline]] bool admit_debt(const Debt &debt, uint64_t cost, uint64_t *next) const {
        Wide wanted = used(debt) + Wide{cost} * window_ms_;
        uint64_t lost;

        if (wanted > full()) { return false; }

        *next = settled(wanted, &lost);

        return true;
    }

    /* Returns it after a cost has been taken off a debt. */
    uint64_t less(const Debt &debt, uint64_t cost) const {
        Wide taken = used(debt);
        uint64_t lost;

        return settled(taken - std::min(taken, Wide{cost} * window_ms_), &lost);
    }

    uint64_t rank_of_debt(const Debt &debt) const {
        Wide left = has_burst() ? used(debt) : used(debt) / debt.pace;

        return 1 + static_cast<uint64_t>(std::min<Wide>(left, UINT64_MAX / 2));
    }

    /* Returns whole ms, rounded up. */
    uint64_t whole_ms(uint64_t fractions) const {
        return (fractions + fraction_mask()) >> fraction_bits();
    }

    uint64_t now_ms_;

private:
    static constexpr unsigned kFullBits = kStateBits - kFormBits - 1 - LimitCode::kBits;
    static constexpr uint64_t kFullMask = (1ULL << kFullBits) - 1;

    /* A quarter of the times is for those ahead, and half for those that the table
     * keeps when they are over. */
    unsigned fraction_bits() const {
        unsigned longest = binary_digits(kBucketDebtWindows * window_ms_) + 2;

        return kFullBits - std::max(time_bits_, std::min(longest, kTimeBitsMax));
    }

    uint64_t fraction_mask() const { return (1ULL << fraction_bits()) - 1; }

    Wide fractions(Wide product) const { return product >> fraction_bits(); }
};

} // namespace limit_sliding
