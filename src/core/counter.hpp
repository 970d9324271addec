/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/describe.hpp"
#include "core/policy.hpp"
#include "core/rank.hpp"

namespace limit_sliding {

/*
 * algorithm=counter, the sliding window counter.  Time is cut into windows of
 * w ms; a key's state is its requests in the present window and in the one
 * before it.  With t ms of the present window elapsed
 *
 *     used = previous x (w - t)/w + current
 *
 * and a request of cost c is admitted when used + c <= limit.  All of it is
 * exact: `used` is kept multiplied by w, in request-milliseconds, where the
 * largest term is 2^22 requests x 2^31.3 ms.
 *
 * State: window number modulo 2^17, a bit for rank.hpp, previous and current in
 * 22 bits each.  The window number wraps; the zone's epochs (table.hpp) keep
 * states from growing old enough for that to matter.
 *
 * An object is this algorithm at one moment, under one limit.
 */
class Counter {
public:
    Counter(const Policy &policy, uint64_t now_ms, uint32_t limit)
        : window_ms_(policy.window_ms), window_(now_ms / policy.window_ms),
          left_ms_(policy.window_ms - now_ms % policy.window_ms), limit_(limit) {}

    /* Returns the epoch; a state two epochs old has not wrapped. */
    uint64_t epoch() const { return window_ / kEpochWindows; }

    /* Returns how much a state constrains its key; 0: as little as no state. */
    uint64_t used(uint64_t state) const { return used(view(state)); }

    uint64_t capacity() const { return limit_; }

    /* Returns the same for another key, whose limit is not known. */
    uint64_t rank(uint64_t state) const {
        View v = view(state);
        uint64_t all = (v.previous + v.current) * window_ms_;

        /* a state is no longer near when most of it has decayed */
        return rank_of(used(v), is_near(state) && used(v) >= all - used(v));
    }

    double share(uint64_t state) const {
        return static_cast<double>(used(state)) / static_cast<double>(limit_ * window_ms_);
    }

    bool admit(uint64_t state, uint32_t cost, uint64_t *next) const {
        View v = view(state);
        uint64_t wanted = used(v) + cost * window_ms_;

        if (cost > limit_ || wanted > limit_ * window_ms_) { return false; }

        if (cost == 0) {
            *next = state;
            return true;
        }

        *next = pack(v.window, is_near_limit(wanted, limit_ * window_ms_), v.previous,
                     v.current + cost);
        return true;
    }

    /* Takes back a cost; `recorded` is the state as its admission left it. */
    static uint64_t refund(uint64_t state, uint64_t recorded, uint32_t cost) {
        uint64_t previous = previous_of(state);
        uint64_t current = current_of(state);

        switch ((window_of(state) - window_of(recorded)) & kWindowMask) {
        case 0:
            current -= std::min<uint64_t>(current, cost);
            break;
        case 1:
            previous -= std::min<uint64_t>(previous, cost);
            break;
        default:
            break;
        }

        return pack(window_of(state), is_near(state), previous, current);
    }

    void describe(uint64_t state, uint32_t cost, Verdict *verdict) const {
        View v = view(state);
        uint64_t full = limit_ * window_ms_;

        describe_usage(
            {limit_, limit_, window_ms_, used(v), full}, cost,
            [&](uint64_t room) { return wait(v, room); }, verdict);
    }

    uint64_t expires_ms(uint64_t state) const { return wait(view(state), 0); }

private:
    static constexpr unsigned kCountBits = 22;
    static constexpr unsigned kWindowBits = 17;
    static constexpr uint64_t kEpochWindows = 64000;

    static constexpr uint64_t kCountMask = (1u << kCountBits) - 1;
    static constexpr uint64_t kWindowMask = (1u << kWindowBits) - 1;

    /* A state lives for two epochs, and for the two windows after its own. */
    static constexpr uint64_t kOldest = 2 * kEpochWindows + 2;

    static_assert(kLimitMax < kCountMask, "the state of all ones is the table's");
    static_assert(kOldest < kWindowMask, "a state must not wrap");

    /* A state, seen at this moment. */
    struct View {
        uint64_t window;
        uint64_t previous;
        uint64_t current;
        uint64_t left_ms;  /* of the window, 1 .. w */
        uint64_t ahead_ms; /* how far its clock runs ahead of ours */
    };

    static uint64_t window_of(uint64_t state) { return state >> (2 * kCountBits + 1); }

    static bool is_near(uint64_t state) { return (state >> (2 * kCountBits) & 1) != 0; }

    static uint64_t current_of(uint64_t state) { return state & kCountMask; }

    static uint64_t previous_of(uint64_t state) { return state >> kCountBits & kCountMask; }

    static uint64_t pack(uint64_t window, bool is_near, uint64_t previous, uint64_t current) {
        uint64_t head = (window & kWindowMask) << 1 | uint64_t{is_near};

        return head << (2 * kCountBits) | previous << kCountBits | current;
    }

    View view(uint64_t state) const {
        uint64_t age = (window_ - window_of(state)) & kWindowMask;

        if (age == 0) { return {window_, previous_of(state), current_of(state), left_ms_, 0}; }

        if (age == 1) { return {window_, current_of(state), 0, left_ms_, 0}; }

        if (age <= kOldest || state == 0) { return {window_, 0, 0, left_ms_, 0}; }

        uint64_t ahead = kWindowMask + 1 - age;

        return {window_ + ahead, previous_of(state), current_of(state), window_ms_,
                (ahead - 1) * window_ms_ + left_ms_};
    }

    uint64_t used(const View &v) const { return v.previous * v.left_ms + v.current * window_ms_; }

    /* Returns the ms until used <= room, the requests that may still count.
     * `used` only falls while nothing is admitted, so the first such moment is
     * found by solving previous x left' + current x w <= room x w for left', in
     * this window, then in the next, where current has become previous. */
    uint64_t wait(const View &v, uint64_t room) const {
        if (used(v) <= room * window_ms_) { return 0; }

        if (v.current < room) {
            uint64_t left = (room - v.current) * window_ms_ / v.previous;

            if (left > 0) { return v.ahead_ms + v.left_ms - left; }
        }

        uint64_t left = v.current > room ? room * window_ms_ / v.current : window_ms_;

        return v.ahead_ms + v.left_ms + window_ms_ - left;
    }

    uint64_t window_ms_;
    uint64_t window_;
    uint64_t left_ms_; /* of the window, 1 .. w */
    uint32_t limit_;
};

} // namespace limit_sliding
