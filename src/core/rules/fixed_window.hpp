/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/policy/calendar.hpp"
#include "core/policy/describe_usage.hpp"
#include "core/policy/policy.hpp"
#include "core/table/slot.hpp"

namespace limit_sliding {

/* The windows of a policy at one moment, of equal length or of the calendar. */
struct EqualWindows {
    uint64_t ms;
    uint64_t present; /* number of the present window */
    uint64_t left_ms; /* ms until the end of the present window, 1 .. ms */

    EqualWindows(const Policy &policy, uint64_t now_ms)
        : ms(policy.window_ms), present(now_ms / policy.window_ms),
          left_ms(policy.window_ms - now_ms % policy.window_ms) {}

    /* Returns the ms until the end of the window that is `ahead` windows after the present one. */
    uint64_t ends_ms(uint64_t ahead) const { return ahead * ms + left_ms; }
};

struct CalendarWindows {
    Calendar calendar;
    const UtcOffsets *offsets;
    uint64_t now_ms;
    uint64_t present;
    uint64_t left_ms;

    CalendarWindows(const Policy &policy, uint64_t now)
        : calendar(policy.calendar), offsets(policy.offsets), now_ms(now),
          present(calendar_number(calendar, offsets, now)), left_ms(ends_ms(0)) {}

    uint64_t ends_ms(uint64_t ahead) const {
        return calendar_begin_ms(calendar, offsets, present + ahead + 1) - now_ms;
    }
};

/*
 * algorithm=fixed.  Time is cut into windows.  A request of cost c is admitted when the requests
 * of the present window + c <= limit.
 *
 * State: 13 bits of 0, the number of the window modulo 2^18, a bit for eviction_rank(), requests
 * in 30 bits.  The zone's epochs (slot.hpp) expire a state before its number wraps.
 *
 * An object is this algorithm at one moment, under one limit.
 */
template <class Windows>
class FixedOf {
public:
    FixedOf(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : windows_(policy, now_ms), limit_(limit) {}

    uint64_t epoch() const { return windows_.present >> kEpochShift; }

    uint64_t used(uint64_t state) const { return view(state).count; }

    uint64_t capacity() const { return limit_; }

    /* Returns the rank of a state of any key, under an unknown limit. */
    uint64_t rank(uint64_t state) const { return eviction_rank(used(state), is_near(state)); }

    /* Returns the rank for a key with its own window, as if it were the zone's present window. */
    uint64_t rank_at_all(uint64_t state, unsigned) const {
        return eviction_rank(state & kCountMask, is_near(state));
    }

    double share(uint64_t state) const {
        return static_cast<double>(used(state)) / static_cast<double>(limit_);
    }

    bool admit(uint64_t state, uint64_t cost, uint64_t *next) const {
        assert(limit_ >= 1 && limit_ <= kLimitMax && cost <= kCostMax);
        View v = view(state);
        if (cost > limit_ || v.count > limit_ - cost) { return false; }
        uint64_t wanted = v.count + cost;
        *next = cost == 0 ? state : pack(v.window, is_near_limit(wanted, limit_), wanted);
        return true;
    }

    /* Decides most states: all that are not ahead.  Returns false if admit() has to decide. */
    bool admit_ready(uint64_t state, uint64_t cost, uint64_t *next, bool *is_admitted) const {
        uint64_t passed = age(state);

        if (passed > kOldest) { return false; }

        uint64_t count = passed == 0 ? state & kCountMask : 0;
        uint64_t wanted = count + cost;

        *is_admitted = cost <= limit_ && wanted <= limit_;

        if (*is_admitted && cost != 0) {
            *next = pack(windows_.present, is_near_limit(wanted, limit_), wanted);
        }

        return true;
    }

    /* Refunds a cost.  `recorded` is the state after its admission. */
    uint64_t refund(uint64_t state, uint64_t recorded, uint64_t cost) const {
        uint64_t window = window_of(state);
        uint64_t count = state & kCountMask;
        if (window != window_of(recorded)) { return state; }
        return pack(window, is_near(state), count > cost ? count - cost : 0);
    }

    /* Records a rejected cost up to the limit. */
    uint64_t record_rejected(uint64_t state, uint64_t cost) const {
        View v = view(state);
        if (v.count >= limit_) { return state; }
        uint64_t taken = std::min(limit_, v.count + cost);
        return pack(v.window, is_near_limit(taken, limit_), taken);
    }

    /* Refunds a cost if its admission is unknown. */
    uint64_t give_back(uint64_t state, uint64_t cost) const { return refund(state, state, cost); }

    void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        View v = view(state);
        describe_usage(
            {limit_, limit_, 1, v.count, limit_}, cost, [&](uint64_t) { return v.ends_ms; },
            verdict);
    }

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

    struct View {
        uint64_t window;
        uint64_t count;
        uint64_t ends_ms; /* ms until the window ends */
    };

    static uint64_t window_of(uint64_t state) { return state >> (kCountBits + 1) & kWindowMask; }

    static bool is_near(uint64_t state) { return (state >> kCountBits & 1) != 0; }

    static uint64_t pack(uint64_t window, bool is_near, uint64_t count) {
        assert(count <= kCountMask);
        uint64_t head = (window & kWindowMask) << 1 | uint64_t{is_near};
        return head << kCountBits | count;
    }

    uint64_t age(uint64_t state) const {
        return (windows_.present - (state >> (kCountBits + 1))) & kWindowMask;
    }

    View view(uint64_t state) const {
        uint64_t passed = age(state);
        if (passed == 0) { return {windows_.present, state & kCountMask, windows_.left_ms}; }
        if (passed <= kOldest || state == 0) { return {windows_.present, 0, windows_.left_ms}; }
        return view_ahead(state, kWindowMask + 1 - passed);
    }

    /* Views a state that is `ahead` windows ahead of this worker's clock.  The clocks of workers
     * differ by less than a minute.  A state two or more windows ahead that begins later than that
     * is from a clock that was set back.  It does not count. */
    [[gnu::noinline]] View view_ahead(uint64_t state, uint64_t ahead) const {
        constexpr uint64_t kFarMs = 60000;
        if (ahead > 1 && windows_.ends_ms(ahead - 1) > kFarMs) {
            return {windows_.present, 0, windows_.left_ms};
        }
        return {windows_.present + ahead, state & kCountMask, windows_.ends_ms(ahead)};
    }

    Windows windows_;
    uint64_t limit_;
};

using Fixed = FixedOf<EqualWindows>;
using CalendarFixed = FixedOf<CalendarWindows>;

} // namespace limit_sliding
