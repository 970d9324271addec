/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/slot.hpp"

namespace limit_sliding {

/* The slot to claim for a new key: the first of the lowest rank, but among live
 * states one at random, so that in a flood of new keys each lasts about as long
 * as the others. */
class Victim {
public:
    /* Ranks, the lowest first.  Tentative copies come last, else two keys could
     * take each other's for ever.  Those that a dead process has left behind
     * are over. */
    static constexpr uint64_t kOver = 0;
    static constexpr uint64_t kUnused = 1;
    static constexpr uint64_t kUnusedLast = 2; /* the last of its line */
    static constexpr uint64_t kLive = 3;       /* and above by what is used */
    static constexpr uint64_t kTentative = UINT64_MAX;

    /* `salt` differs from key to key. */
    explicit Victim(uint64_t salt) : copy_{}, rank_(UINT64_MAX), turn_(UINT64_MAX), salt_(salt) {}

    /* `place` is the number of the copy's slot in the search. */
    void consider(const Copy &copy, uint64_t rank, uint64_t place) {
        /* multiples of the golden ratio, modulo one, are spread evenly: of any
         * number of places, each has a fair chance to come first */
        uint64_t turn = rank >= kLive ? (salt_ + place) * 0x9e3779b97f4a7c15 : place;

        if (rank < rank_ || (rank == rank_ && turn < turn_)) {
            rank_ = rank;
            turn_ = turn;
            copy_ = copy;
        }
    }

    bool is_found() const { return copy_.slot != nullptr; }

    /* True if no other slot is better. */
    bool is_over() const { return is_found() && rank_ == kOver; }

    /* True if a state that counts has to go, or a copy whose owner may still
     * give it one. */
    bool is_live() const { return is_found() && rank_ >= kLive; }

    const Copy &copy() const { return copy_; }

private:
    Copy copy_;
    uint64_t rank_;
    uint64_t turn_;
    uint64_t salt_;
};

} // namespace limit_sliding
