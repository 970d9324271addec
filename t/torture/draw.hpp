/* Copyright (C) the limit_sliding authors */

/* Random policies, limits, costs and moments. */

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/limiter/limiter.hpp"
#include "random.hpp"

using namespace limit_sliding;

namespace torture {

class Draw {
public:
    explicit Draw(uint64_t seed) : random_(seed * 0x2545f4914f6cdd1d) {}

    /* Draws from the bytes of a fuzzer, as few for a number as it needs, so that a
     * byte more or less changes little of a history.  Zeros follow the last one. */
    Draw(const uint8_t *bytes, size_t n) : random_(0), next_(bytes), end_(bytes + n) {}

    /* True if there are no bytes left; a seed never ends. */
    bool is_over() const { return next_ != nullptr && next_ == end_; }

    uint64_t next() { return next_ == nullptr ? random_next(&random_) : take(sizeof(uint64_t)); }

    uint64_t below(uint64_t n) {
        size_t bytes = 0;
        for (uint64_t most = n - 1; most != 0; most >>= 8) {
            bytes++;
        }

        return (next_ == nullptr ? random_next(&random_) : take(bytes)) % n;
    }

    bool one_in(uint64_t n) { return below(n) == 0; }

    /* Uniform in its number of digits. */
    uint64_t scale(uint64_t low, uint64_t high) {
        reseed();
        return random_scale(&random_, low, high);
    }

    /* Mostly small ones; sometimes any, and the largest. */
    uint32_t limit() {
        switch (below(16)) {
        case 0:
            return kNarrowMax - static_cast<uint32_t>(below(3));
        case 1:
        case 2:
            return static_cast<uint32_t>(scale(1, kNarrowMax));
        case 3:
        case 4:
            return static_cast<uint32_t>(scale(1, 2000));
        default:
            return 1 + static_cast<uint32_t>(below(20));
        }
    }

    uint32_t cost(uint64_t capacity) {
        switch (below(16)) {
        case 0:
            return 0;
        case 1:
            return small(capacity + below(2));
        case 2:
            return small(1 + below(capacity));
        case 3:
            return UINT32_MAX >> below(32);
        case 4:
        case 5:
        case 6:
            return small(1 + below(capacity / 4 + 1));
        case 7:
        case 8:
            return small(1 + below(capacity / 64 + 1));
        default:
            return 1;
        }
    }

    uint64_t window_ms() {
        reseed();
        return random_window_ms(&random_);
    }

    Policy policy(Algorithm algorithm, uint64_t window_ms) {
        Policy policy = {};

        policy.algorithm = algorithm;
        policy.window_ms = window_ms;
        policy.full = WhenFull::kEvict;

        if (algorithm == Algorithm::kCounter) {
            policy.precision = one_in(2) ? 1 : static_cast<uint32_t>(1 + below(60));
        }

        if (algorithm >= Algorithm::kTokenBucket && !one_in(3)) { policy.burst = limit(); }

        if (algorithm == Algorithm::kLeakyBucket && one_in(2)) {
            policy.undelayed = one_in(2) ? kNeverDelayed : limit();
        }

        return policy;
    }

    /* From one request to the next. */
    uint64_t gap_ms(const Policy &policy, uint32_t limit, uint64_t now_ms) {
        uint64_t w = policy.window_ms;

        switch (below(32)) {
        case 0: /* many windows */
            return one_in(4) ? std::min((w << below(18)) + below(3), kLongestMs) : below(5 * w);
        case 1: /* about a window */
            return w - std::min<uint64_t>(w, 2) + below(5);
        case 2: /* about the end of a part of one */
        case 3:
            return to_border_ms(policy, now_ms);
        case 4: /* about the distance of two at the rate */
        case 5:
        case 6:
            return w / limit + below(3);
        case 7:
        case 8:
            return below(w / limit + 2);
        case 9:
            return below(w);
        case 10:
        case 11:
            return below(w / 8 + 1);
        case 12:
        case 13:
        case 14:
            return 1 + below(3);
        default:
            return 0;
        }
    }

private:
    static constexpr uint64_t kLongestMs = 50ull * 365 * 86400000;

    uint64_t take(size_t n) {
        uint64_t number = 0;
        for (; n > 0; n--) {
            number = number << 8 | (next_ != end_ ? *next_++ : 0);
        }

        return number;
    }

    /* Lets what follows depend on two bytes. */
    void reseed() { random_ = next_ == nullptr ? random_ : take(2); }

    static uint32_t small(uint64_t cost) {
        return static_cast<uint32_t>(std::min<uint64_t>(cost, UINT32_MAX));
    }

    uint64_t to_border_ms(const Policy &policy, uint64_t now_ms) {
        uint64_t parts = std::max(policy.precision, 1u);
        uint64_t next = now_ms * parts / policy.window_ms + 1;
        uint64_t at_ms = (next * policy.window_ms + parts - 1) / parts;

        return at_ms - now_ms - 1 + below(3);
    }

    uint64_t random_;
    const uint8_t *next_ = nullptr; /* null: numbers are of the seed */
    const uint8_t *end_ = nullptr;
};

inline const char *name_of(Algorithm algorithm) {
    static const char *const names[] = {"counter", "log", "fixed", "token_bucket", "leaky_bucket"};

    return names[static_cast<int>(algorithm)];
}

} // namespace torture
