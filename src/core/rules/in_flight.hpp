/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cassert>
#include <cstdint>

#include "core/policy/describe_usage.hpp"
#include "core/policy/policy.hpp"

namespace limit_sliding {

/*
 * inflight=.  Let h be the units that the key's requests in flight hold.  A request of cost c is
 * admitted if h + c <= limit.
 *
 * State: held units in 22 bits, the mark of a change in 40 bits.  The mark names the entry of the
 * ledger (holds/ledger.hpp) for which the units were changed; 0: no change is under way.  The state
 * does not depend on the time, so it never expires; a state without units is free for another key.
 *
 * An object is this algorithm under one limit.
 */
class InFlight {
public:
    static constexpr unsigned kMarkBits = 40;
    static constexpr uint64_t kMarkMask = (uint64_t{1} << kMarkBits) - 1;

    static uint64_t held(uint64_t state) { return state >> kMarkBits; }
    static uint64_t mark(uint64_t state) { return state & kMarkMask; }
    static uint64_t without_mark(uint64_t state) { return state & ~kMarkMask; }

    static uint64_t make(uint64_t held_units, uint64_t mark) {
        assert(held_units <= kNarrowMax && mark <= kMarkMask);
        return held_units << kMarkBits | mark;
    }

    InFlight(const Policy &, uint64_t, uint64_t limit) : limit_(limit) {}

    uint64_t epoch() const { return 0; /* for all tags */ }
    uint64_t capacity() const { return limit_; }
    uint64_t rank(uint64_t state) const { return held(state); }
    uint64_t rank_at_all(uint64_t state, unsigned) const { return held(state); }
    uint64_t expires_ms(uint64_t state) const { return held(state) == 0 ? 0 : kNever; }

    double share(uint64_t state) const {
        return static_cast<double>(held(state)) / static_cast<double>(limit_);
    }

    bool admits(uint64_t state, uint64_t cost) const {
        assert(limit_ >= 1 && limit_ <= kNarrowMax && cost <= kCostMax);
        return held(state) + cost <= limit_;
    }

    /* Decides without consuming; `next` is the same state.  take_in_flight() consumes. */
    bool admit(uint64_t state, uint64_t cost, uint64_t *next) const {
        *next = state;
        return admits(state, cost);
    }

    /* Units are given back by Hold::release() alone, and rejections are not recorded. */
    uint64_t refund(uint64_t state, uint64_t, uint64_t) const { return state; }
    uint64_t give_back(uint64_t state, uint64_t) const { return state; }
    uint64_t record_rejected(uint64_t state, uint64_t) const { return state; }

    void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        describe_usage(
            {limit_, limit_, 1, held(state), limit_}, cost, [](uint64_t) { return kNever; },
            verdict);
    }

    /* Nobody knows when a request will end. */
    uint64_t retry_after_ms(uint64_t state, uint64_t cost) const {
        return admits(state, cost) ? 0 : kNever;
    }

private:
    uint64_t limit_;
};

} // namespace limit_sliding
