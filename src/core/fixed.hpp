/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/calendar.hpp"
#include "core/debt.hpp"
#include "core/describe.hpp"
#include "core/policy.hpp"
#include "core/rank.hpp"

namespace limit_sliding {

/* The windows of a policy as of a moment: those of one length, and those of a
 * calendar. */
struct EqualWindows {
    uint64_t ms;
    uint64_t present; /* its number */
    uint64_t left_ms; /* of it, 1 .. its length */

    EqualWindows(const Policy &policy, uint64_t now_ms)
        : ms(policy.window_ms), present(now_ms / policy.window_ms),
          left_ms(policy.window_ms - now_ms % policy.window_ms) {}

    /* Returns the ms until the end of the window that is so many ahead. */
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
 * algorithm=fixed.  Time is cut into windows, and a request of cost c is admitted
 * when the present window's requests + c <= limit.
 *
 * State: 13 bits, window number modulo 2^18, a bit for rank.hpp, requests in 30
 * bits.  The window number wraps as Counter's does.  The first bits are 0 but for
 * a key that owes: they are the code of Debt::pace, the window is Debt::window, and
 * its requests are Debt::rest.
 *
 * An object is this algorithm at one moment, under one limit.
 */
template <class Windows>
class FixedOf {
public:
    FixedOf(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : windows_(policy, now_ms), limit_(limit), is_own_(policy.salt != 0) {}

    uint64_t epoch() const { return windows_.present >> kEpochShift; }

    uint64_t used(uint64_t state) const { return view(state).count; }

    uint64_t capacity() const { return limit_; }

    /* Returns how much a state constrains another key, whose limit is not
     * known. */
    uint64_t rank(uint64_t state) const { return rank_of(used(state), is_near(state)); }

    /* Returns the same of a key that has a window of its own, as if that were the
     * present one of the zone's. */
    uint64_t rank_at_all(uint64_t state, unsigned) const {
        uint64_t count = state & kCountMask;

        return is_owing(state)
                   ? rank_of(count + LimitCode::limit(state >> kPaceShift, limit_), true)
                   : rank_of(count, is_near(state));
    }

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

    /* Decides on most states: those that are not ahead.  False: admit() has to. */
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

    /* Takes back a cost; `recorded` is the state as its admission left it.  What
     * is owed goes first. */
    uint64_t refund(uint64_t state, uint64_t recorded, uint64_t cost) const {
        uint64_t window = window_of(state);
        uint64_t count = state & kCountMask;

        if (is_owing(state)) {
            View v = view(state);

            if (v.pace != 0) { return settled(v.window, v.count - std::min(v.count, cost)); }
        }

        if (window != window_of(recorded)) { return state; }

        return pack(window, is_near(state), count > cost ? count - cost : 0);
    }

    /* Records a cost whatever the limit says.  Returns how many units the key
     * cannot owe: if they are more than the cost, `next` is not to be used. */
    uint64_t charge(uint64_t state, uint64_t cost, uint64_t *next) const {
        View v = view(state);
        uint64_t taken = v.count + cost;
        uint64_t lost = 0;

        *next = taken > limit_ ? owing(Debt::of(taken, limit_, v.window, &lost))
                               : pack(v.window, is_near_limit(taken, limit_), taken);

        return lost;
    }

    /* Records a rejected cost, as far as the limit has room for it. */
    uint64_t record_rejected(uint64_t state, uint64_t cost) const {
        View v = view(state);

        if (v.count >= limit_) { return state; }

        return settled(v.window, std::min(limit_, v.count + cost));
    }

    /* Takes back a cost. */
    uint64_t give_back(uint64_t state, uint64_t cost) const { return refund(state, state, cost); }

    /* The epochs of the zone's window last for longer than a key may owe, so its
     * state needs no epoch ahead. */
    static uint64_t epochs_within(uint64_t) { return 0; }

    /* True for a state that owes, or has owed, if its tag has to tell that. */
    bool owes(uint64_t state) const { return is_own_ && is_owing(state); }

    /* Returns the ms until the last window in which a state owes. */
    uint64_t owed_ms(uint64_t state) const {
        uint64_t passed = age(state);

        return is_owing(state) && passed > kOldest ? windows_.ends_ms(kWindowMask - passed) : 0;
    }

    void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        View v = view(state);

        describe_usage(
            {limit_, limit_, 1, v.count, limit_}, cost,
            [&](uint64_t room) { return wait_ms(v, room); }, verdict);
    }

    /* Returns the verdict's retry_after_ms alone. */
    uint64_t retry_after_ms(uint64_t state, uint64_t cost) const {
        if (cost > limit_) { return kNever; }

        View v = view(state);

        return v.count > limit_ - cost ? wait_ms(v, limit_ - cost) : 0;
    }

    uint64_t expires_ms(uint64_t state) const {
        View v = view(state);

        return v.count == 0 ? 0 : wait_ms(v, 0);
    }

private:
    static constexpr unsigned kCountBits = 30;
    static constexpr unsigned kWindowBits = 18;
    static constexpr unsigned kPaceShift = kCountBits + 1 + kWindowBits;
    static constexpr unsigned kEpochShift = 16;

    static constexpr uint64_t kCountMask = (1u << kCountBits) - 1;
    static constexpr uint64_t kWindowMask = (1u << kWindowBits) - 1;

    /* No state is older than two epochs. */
    static constexpr uint64_t kOldest = 2u << kEpochShift;

    static_assert(kLimitMax <= kCountMask, "a limit fits");
    static_assert(kOldest < kWindowMask, "a state must not wrap");
    static_assert(kDebtWindows < 1u << kEpochShift, "nor while its key owes");
    static_assert(kPaceShift + LimitCode::kBits == 62, "a code fits");

    /* A state, seen at this moment. */
    struct View {
        uint64_t window;
        uint64_t count;
        uint64_t ends_ms; /* until the window ends */
        uint64_t pace;    /* of a key that owes, else 0 */
    };

    static uint64_t window_of(uint64_t state) { return state >> (kCountBits + 1) & kWindowMask; }

    static bool is_owing(uint64_t state) { return state >> kPaceShift != 0; }

    static bool is_near(uint64_t state) { return (state >> kCountBits & 1) != 0; }

    static uint64_t pack(uint64_t window, bool is_near, uint64_t count) {
        uint64_t head = (window & kWindowMask) << 1 | uint64_t{is_near};

        return head << kCountBits | count;
    }

    uint64_t age(uint64_t state) const {
        return (windows_.present - (state >> (kCountBits + 1))) & kWindowMask;
    }

    View view(uint64_t state) const {
        uint64_t passed = age(state);

        if (passed == 0) { return {windows_.present, state & kCountMask, windows_.left_ms, 0}; }

        if (passed <= kOldest || state == 0) { return {windows_.present, 0, windows_.left_ms, 0}; }

        return view_ahead(state, kWindowMask + 1 - passed);
    }

    /* Sees a state that is so many windows ahead: it owes, or is of a clock that is
     * ahead. */
    [[gnu::noinline]] View view_ahead(uint64_t state, uint64_t ahead) const {
        uint64_t count = state & kCountMask;
        uint64_t ends_ms = windows_.ends_ms(ahead);

        if (!is_owing(state)) { return {windows_.present + ahead, count, ends_ms, 0}; }

        uint64_t pace = LimitCode::limit(state >> kPaceShift, limit_);

        return {windows_.present, Debt{ahead, pace, count}.used(0), ends_ms, pace};
    }

    /* Returns the ms until no more than `room`, which is less than now, is used.
     * The last window of a debt has its rest, and each one before it one pace
     * more. */
    uint64_t wait_ms(const View &v, uint64_t room) const {
        if (v.pace == 0) { return v.ends_ms; }

        uint64_t windows = (v.count - room + v.pace - 1) / v.pace;

        return std::min(v.ends_ms, windows_.ends_ms(windows - 1));
    }

    static uint64_t owing(const Debt &debt) {
        return LimitCode::of(debt.pace) << kPaceShift | pack(debt.window, true, debt.rest);
    }

    /* Returns the state of a key that has used so many at a window. */
    uint64_t settled(uint64_t window, uint64_t taken) const {
        uint64_t lost;

        return taken > limit_ ? owing(Debt::of(taken, limit_, window, &lost))
                              : pack(window, is_near_limit(taken, limit_), taken);
    }

    Windows windows_;
    uint64_t limit_;
    bool is_own_; /* the window is the key's own */
};

using Fixed = FixedOf<EqualWindows>;
using CalendarFixed = FixedOf<CalendarWindows>;

} // namespace limit_sliding
