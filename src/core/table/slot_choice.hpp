/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/table/slot.hpp"

namespace limit_sliding {

/* Chooses the slot to claim for a new key: the first one of the lowest rank.  Among live states
 * the choice is random, so that keys last equally long in a flood of new keys. */
class SlotChoice {
public:
    /* Ranks in ascending order.  An expired state may still count by a clock that lags more than
     * expected, so unused slots come first.  The last slot of a line comes after expired states,
     * because searches end sooner while it is unused.  Tentative copies come last, or two keys
     * could evict each other forever; but tentative copies of dead processes become kOver. */
    static constexpr uint64_t kUnused = 0; /* or a withdrawn copy */
    static constexpr uint64_t kOver = 1;
    static constexpr uint64_t kUnusedLast = 2; /* the last slot of a line */
    static constexpr uint64_t kLive = 3;       /* plus the rank of the state */
    static constexpr uint64_t kTentative = UINT64_MAX;

    /* `salt` differs between keys. */
    explicit SlotChoice(uint64_t salt)
        : copy_{}, rank_(UINT64_MAX), turn_(UINT64_MAX), salt_(salt) {}

    /* `place` is the number of the slot in the search. */
    void consider(const Copy &copy, uint64_t rank, uint64_t place) {
        /* multiples of the golden ratio modulo 1 are evenly spread, so each place may come first */
        uint64_t turn = rank >= kLive ? (salt_ + place) * 0x9e3779b97f4a7c15 : place;

        if (rank < rank_ || (rank == rank_ && turn < turn_)) {
            rank_ = rank;
            turn_ = turn;
            copy_ = copy;
        }
    }

    bool is_found() const { return copy_.slot != nullptr; }

    /* Returns true if only an unused slot can be better. */
    bool is_over() const { return is_found() && rank_ <= kOver; }

    /* Returns true if the choice would evict a live state, or a copy that may still get a state. */
    bool is_live() const { return is_found() && rank_ >= kLive; }

    const Copy &copy() const { return copy_; }

private:
    Copy copy_;
    uint64_t rank_;
    uint64_t turn_;
    uint64_t salt_;
};

} // namespace limit_sliding
