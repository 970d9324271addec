/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/describe.hpp"
#include "core/policy.hpp"
#include "core/rank.hpp"

namespace limit_sliding {

/*
 * algorithm=fixed.  Time is cut into windows of w ms, and a request of cost c
 * is admitted when the present window's requests + c <= limit.
 *
 * State: window number modulo 2^18, a bit for rank.hpp, requests in 30 bits.
 * The window number wraps as Counter's does.
 *
 * An object is this algorithm at one moment, under one limit.
 */
class Fixed {
public:
    Fixed(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : window_ms_(policy.window_ms), window_(now_ms / policy.window_ms),
          left_ms_(policy.window_ms - now_ms % policy.window_ms), limit_(limit) {}

    uint64_t epoch() const { return window_ >> kEpochShift; }

    uint64_t used(uint64_t state) const { return view(state).count; }

    uint64_t capacity() const { return limit_; }

    /* Returns how much a state constrains another key, whose limit is not
     * known. */
    uint64_t rank(uint64_t state) const { return rank_of(used(state), is_near(state)); }

    double share(uint64_t state) const {
        return static_cast<double>(used(state)) / static_cast<double>(limit_);
    }

    bool admit(uint64_t state, uint64_t cost, uint64_t *next) const {
        View v = view(state);

        if (cost > limit_ || v.count > limit_ - cost) { return false; }

        uint64_t wanted = v.count + cost;

        *next = cost == 0 ? state : pack(v.window, is_near_limit(wanted, limit_), wanted);
        return true;
    }

    bool admit_ready(uint64_t state, uint64_t cost, uint64_t *next, bool *is_admitted) const {
        *is_admitted = admit(state, cost, next);
        return true;
    }

    /* Takes back a cost; `recorded` is the state as its admission left it. */
    static uint64_t refund(uint64_t state, uint64_t recorded, uint64_t cost) {
        uint64_t window = window_of(state);
        uint64_t count = state & kCountMask;

        if (window != window_of(recorded)) { return state; }

        return pack(window, is_near(state), count > cost ? count - cost : 0);
    }

    /* Records a cost whatever the limit says.  Returns how many units could not
     * be recorded. */
    uint64_t charge(uint64_t state, uint64_t cost, uint64_t *next) const {
        View v = view(state);
        uint64_t taken = std::min(cost, limit_ - std::min(limit_, v.count));

        *next = pack(v.window, true, v.count + taken);

        return cost - taken;
    }

    /* Takes back a cost. */
    static uint64_t give_back(uint64_t state, uint64_t cost) { return refund(state, state, cost); }

    void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        View v = view(state);

        describe_usage(
            {limit_, limit_, 1, v.count, limit_}, cost, [&](uint64_t) { return v.ends_ms; },
            verdict);
    }

    /* Returns the verdict's retry_after_ms alone. */
    uint64_t retry_after_ms(uint64_t state, uint64_t cost) const {
        if (cost > limit_) { return kNever; }

        View v = view(state);

        return v.count > limit_ - cost ? v.ends_ms : 0;
    }

    uint64_t expires_ms(uint64_t state) const {
        View v = view(state);

        return v.count == 0 ? 0 : v.ends_ms;
    }

private:
    static constexpr unsigned kCountBits = 30;
    static constexpr unsigned kWindowBits = 18;
    static constexpr unsigned kEpochShift = 16;

    static constexpr uint64_t kCountMask = (1u << kCountBits) - 1;
    static constexpr uint64_t kWindowMask = (1u << kWindowBits) - 1;

    /* No state is older than two epochs. */
    static constexpr uint64_t kOldest = 2u << kEpochShift;

    static_assert(kLimitMax <= kCountMask, "a limit fits");
    static_assert(kOldest < kWindowMask, "a state must not wrap");

    /* A state, seen at this moment. */
    struct View {
        uint64_t window;
        uint64_t count;
        uint64_t ends_ms; /* until the window ends */
    };

    static uint64_t window_of(uint64_t state) { return state >> (kCountBits + 1); }

    static bool is_near(uint64_t state) { return (state >> kCountBits & 1) != 0; }

    static uint64_t pack(uint64_t window, bool is_near, uint64_t count) {
        uint64_t head = (window & kWindowMask) << 1 | uint64_t{is_near};

        return head << kCountBits | count;
    }

    View view(uint64_t state) const {
        uint64_t age = (window_ - window_of(state)) & kWindowMask;

        if (age == 0) { return {window_, state & kCountMask, left_ms_}; }

        if (age <= kOldest || state == 0) { return {window_, 0, left_ms_}; }

        uint64_t ahead = kWindowMask + 1 - age;

        return {window_ + ahead, state & kCountMask, ahead * window_ms_ + left_ms_};
    }

    uint64_t window_ms_;
    uint64_t window_;
    uint64_t left_ms_; /* of the window, 1 .. w */
    uint64_t limit_;
};

} // namespace limit_sliding
