/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/policy.hpp"

namespace limit_sliding {

/*
 * algorithm=counter of any precision p, from its counts: requests in each of
 * the p + 1 parts, of w/p ms, that the window reaches into, the oldest first.
 * With e/p ms of the present part elapsed
 *
 *     used = oldest x (w - e)/w + all others
 *
 * `spent` has been added to the newest since.  As in Counter, `used` is kept
 * multiplied by w, and all of it is exact.
 */
class CounterParts {
public:
    CounterParts(const Policy &policy, uint64_t now_ms, const int64_t *counts, uint64_t spent)
        : window_ms_(policy.window_ms), precision_(std::max(policy.precision, 1u)), now_ms_(now_ms),
          elapsed_(now_ms * precision_ % policy.window_ms), counts_(counts), spent_(spent) {}

    uint64_t used() const { return count(0) * (window_ms_ - elapsed_) + after(0) * window_ms_; }

    /* Returns the ms until used <= room requests, if nothing is admitted. */
    uint64_t wait_ms(uint64_t room) const {
        if (used() <= room * window_ms_) { return 0; }

        /* it happens while part i is the oldest one */
        uint64_t i = 0;
        uint64_t rest = after(0);

        while (rest > room) {
            i++;
            rest -= count(i);
        }

        uint64_t weight = count(i) == 0
                              ? window_ms_
                              : std::min((room - rest) * window_ms_ / count(i), window_ms_);
        uint64_t starts = now_ms_ * precision_ - elapsed_ + i * window_ms_;

        return (starts + window_ms_ - weight + precision_ - 1) / precision_ - now_ms_;
    }

private:
    uint64_t count(uint64_t i) const {
        return static_cast<uint64_t>(counts_[i]) + (i == precision_ ? spent_ : 0);
    }

    uint64_t after(uint64_t i) const {
        uint64_t sum = 0;

        while (++i <= precision_) {
            sum += count(i);
        }

        return sum;
    }

    uint64_t window_ms_;
    uint64_t precision_;
    uint64_t now_ms_;
    uint64_t elapsed_; /* of this part, x precision */
    const int64_t *counts_;
    uint64_t spent_;
};

} // namespace limit_sliding
