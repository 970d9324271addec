/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_CORE_BUCKET_HPP
#define LIMIT_SLIDING_CORE_BUCKET_HPP

#include <algorithm>
#include <cstdint>

#include "limiter.h"

namespace limit_sliding {

/*
 * algorithm=token_bucket and leaky_bucket.  What requests have used runs off
 * at the limit, `limit` in w ms:
 *
 *     used' = max(0, used - limit/w x elapsed)
 *
 * and a request of cost c is admitted when used + c <= capacity.  Tokens in
 * the bucket are capacity - used.  To a leaky bucket, `used` is the queue, with
 * room for one that leaves at once and `burst` that wait: what was in it before
 * the request has to leave first.
 *
 * `used` is kept multiplied by w, so that all of it is exact in integers.
 *
 * State: the time of the latest admission, in 24 to 34 bits, and `used` as of
 * then, in requests and binary fractions of them, as a floating point number:
 * shift in 6 bits, mantissa in the other 22 to 32.  Whole requests are always
 * exact, fractions as far as the mantissa goes, and rounded up beyond.
 *
 * Times are told apart over four times as long as a bucket may take to fill.
 * So a burst counts only as far as it runs off in 2^32 ms, 49 days.
 *
 * The limit may differ from one request to the next: `used` is in requests, so
 * it means the same under either.
 *
 * An object is this algorithm at one moment, under one limit.
 */
class Bucket {
public:
    Bucket(const limit_sliding_policy_t &policy, uint64_t now_ms,
           uint32_t limit)
        : window_ms_(policy.window_ms), now_ms_(now_ms), limit_(limit),
          time_bits_(time_bits(policy)), is_queue_(is_queue(policy)),
          burst_(policy.burst)
    {
    }

    /* The division is for bursts that are longer than times are told apart. */
    uint64_t capacity() const
    {
        if (!is_queue_ && burst_ == 0) {
            return limit_;
        }

        uint64_t requests = burst_ + uint64_t{is_queue_};
        uint64_t runs_off = uint64_t{limit_} << (time_bits_ - 2);

        return requests * window_ms_ <= runs_off ? requests
                                                 : runs_off / window_ms_;
    }

    /* Advances whenever a bucket that was not used since has filled. */
    uint64_t epoch() const { return now_ms_ >> (time_bits_ - 2); }

    /*
     * How much a state constrains its key; 0: as little as none.  Keys may have
     * limits of their own: this one is over when that is so under any.
     */
    uint64_t rank(uint64_t state) const
    {
        return elapsed_ms(state) >= longest_ms()
                   ? 0
                   : 1 + left_of(then(state), state);
    }

    /* What is used, x w. */
    uint64_t used(uint64_t state) const
    {
        /* a bucket is never more than empty, whatever a higher limit allowed */
        return left_of(std::min(then(state), full()), state);
    }

    double share(uint64_t state) const
    {
        return static_cast<double>(used(state)) / static_cast<double>(full());
    }

    [[gnu::always_inline]] bool admit(uint64_t state, uint32_t cost,
                                      uint64_t *next) const
    {
        uint64_t before = then(state);
        uint64_t taken = left_of(std::min(before, full()), state);

        if (cost > capacity() || taken > full() - cost * window_ms_) {
            return false;
        }

        if (cost == 0) {
            *next = state;
            return true;
        }

        if (before > full()) {
            taken = left_of(before, state);
        }

        *next = pack(state, taken + cost * window_ms_);
        return true;
    }

    uint64_t refund(uint64_t state, uint64_t, uint32_t cost) const
    {
        uint64_t taken = left_of(then(state), state);

        return pack(state, taken - std::min(taken, cost * window_ms_));
    }

    /* To a request that has yet to be decided, or was rejected. */
    void describe(uint64_t state, uint32_t cost,
                  limit_sliding_verdict_t *verdict) const
    {
        uint64_t taken = used(state);
        uint64_t wanted = taken + cost * window_ms_;
        uint64_t room = full() - std::min(taken, full());
        uint64_t fits = is_queue_ ? window_ms_ : full();

        verdict->limit = limit_;
        verdict->remaining = static_cast<uint32_t>(room / window_ms_);
        verdict->excess = wanted > fits ? thousandths(wanted - fits) : 0;
        verdict->delay_ms = 0;
        verdict->reset_ms
            = verdict->remaining == capacity()
                  ? 0
                  : wait_ms(state, taken
                                       - (capacity() - verdict->remaining - 1)
                                             * window_ms_);
        verdict->retry_after_ms
            = cost > capacity()                 ? LIMIT_SLIDING_NEVER
              : cost == verdict->remaining + 1u ? verdict->reset_ms
              : wanted > full() ? wait_ms(state, wanted - full())
                                : 0;
    }

    /* To a request that was admitted to a queue, by the state after it. */
    void describe_queued(uint64_t state, uint32_t cost,
                         limit_sliding_verdict_t *verdict) const
    {
        uint64_t ahead = ahead_of(state, cost);

        if (is_queue_ && cost > 0) {
            verdict->delay_ms = delay_ms(state, cost);
            verdict->excess = thousandths(ahead + (cost - 1) * window_ms_);
        }
    }

    /* How long such a request is held back: until those ahead have left. */
    uint64_t delay_ms(uint64_t state, uint32_t cost) const
    {
        /* most found the queue empty, which takes little to tell */
        if (requests_of(state) <= uint64_t{cost} << kFractionBits) {
            return 0;
        }

        return cost == 0 ? 0 : wait_ms(state, ahead_of(state, cost));
    }

    /* Of any key, whatever its limit. */
    uint64_t expires_ms(uint64_t state) const
    {
        uint64_t elapsed = elapsed_ms(state);

        return longest_ms() - std::min(elapsed, longest_ms());
    }

private:
    static constexpr unsigned kStateBits = 62;
    static constexpr unsigned kShiftBits = 6;
    static constexpr unsigned kTimeBitsMin = 24;
    static constexpr unsigned kTimeBitsMax = 34;
    static constexpr unsigned kFractionBits = 32;

    static constexpr uint64_t kShiftMask = (1u << kShiftBits) - 1;

    static_assert(LIMIT_SLIDING_WINDOW_MAX_MS < 1ULL << kFractionBits,
                  "a fraction tells all of w apart");
    static_assert(LIMIT_SLIDING_WINDOW_MAX_MS <= 1ULL << (kTimeBitsMax - 2),
                  "the longest window has time to fill a bucket");
    static_assert(LIMIT_SLIDING_LIMIT_MAX
                      < 1u << (kStateBits - kShiftBits - kTimeBitsMax),
                  "a mantissa holds all whole requests");
    static_assert(LIMIT_SLIDING_LIMIT_MAX <= UINT64_MAX >> kTimeBitsMax,
                  "what runs off in the longest time fits");

    static bool is_queue(const limit_sliding_policy_t &policy)
    {
        return policy.algorithm == LIMIT_SLIDING_LEAKY_BUCKET;
    }

    static unsigned bits_of(uint64_t n)
    {
        return 63 ^ static_cast<unsigned>(__builtin_clzll(n << 1 | 1));
    }

    static unsigned time_bits(const limit_sliding_policy_t &policy)
    {
        unsigned bits = bits_of(policy.window_ms) + bits_of(policy.burst) + 2;

        return std::min(std::max(bits, kTimeBitsMin), kTimeBitsMax);
    }

    /* That a bucket takes to fill, under any limit. */
    uint64_t longest_ms() const
    {
        uint64_t requests = std::max(burst_ + uint64_t{is_queue_}, uint64_t{1});

        return std::min(requests * window_ms_, uint64_t{1} << (time_bits_ - 2));
    }

    uint64_t full() const { return capacity() * window_ms_; }

    unsigned mantissa_bits() const
    {
        return kStateBits - kShiftBits - time_bits_;
    }

    uint64_t mantissa_mask() const { return (1ULL << mantissa_bits()) - 1; }
    uint64_t time_mask() const { return (1ULL << time_bits_) - 1; }

    uint64_t time_of(uint64_t state) const
    {
        return state >> (mantissa_bits() + kShiftBits);
    }

    /* What was used at the state's time, in requests x 2^32. */
    uint64_t requests_of(uint64_t state) const
    {
        uint64_t shift = state >> mantissa_bits() & kShiftMask;

        return (state & mantissa_mask()) << shift;
    }

    /* `used` at the state's time. */
    uint64_t then(uint64_t state) const
    {
        uint64_t requests = requests_of(state);
        uint64_t fraction = requests & ((1ULL << kFractionBits) - 1);

        return (requests >> kFractionBits) * window_ms_
               + (fraction * window_ms_ >> kFractionBits);
    }

    /* What is left now of what was used at the state's time. */
    uint64_t left_of(uint64_t taken, uint64_t state) const
    {
        uint64_t ran_off = elapsed_ms(state) * limit_;

        return ran_off > taken ? 0 : taken - ran_off;
    }

    /* Since the state's time; 0 if another's clock, ahead of ours, made it. */
    uint64_t elapsed_ms(uint64_t state) const
    {
        uint64_t elapsed = (now_ms_ - time_of(state)) & time_mask();

        return elapsed <= time_mask() / 4 * 3 ? elapsed : 0;
    }

    /* How far that clock is ahead. */
    uint64_t ahead_ms(uint64_t state) const
    {
        return state == 0 || elapsed_ms(state) != 0
                   ? 0
                   : (time_of(state) - now_ms_) & time_mask();
    }

    /* A state of what is used now; `before` tells if our clock is behind. */
    uint64_t pack(uint64_t before, uint64_t taken) const
    {
        uint64_t time = before != 0 && elapsed_ms(before) == 0
                            ? time_of(before)
                            : now_ms_ & time_mask();
        uint64_t rest = taken % window_ms_;
        uint64_t requests
            = ((taken / window_ms_) << kFractionBits)
              + ((rest << kFractionBits) + window_ms_ - 1) / window_ms_;
        unsigned bits = bits_of(requests);
        unsigned shift = bits > mantissa_bits() ? bits - mantissa_bits() : 0;
        uint64_t mantissa = rounded_up(requests, shift);

        if (mantissa > mantissa_mask()) {
            mantissa = rounded_up(requests, ++shift);
        }

        uint64_t state
            = (time << kShiftBits | shift) << mantissa_bits() | mantissa;

        return state == 0 ? 1 : state;
    }

    static uint64_t rounded_up(uint64_t n, unsigned shift)
    {
        return (n + (1ULL << shift) - 1) >> shift;
    }

    /* What was in the queue before a request of this cost, which is in now. */
    uint64_t ahead_of(uint64_t state, uint32_t cost) const
    {
        uint64_t taken = used(state);

        return taken - std::min(taken, cost * window_ms_);
    }

    /* Milliseconds, rounded up, until so much has run off a state. */
    uint64_t wait_ms(uint64_t state, uint64_t taken) const
    {
        return taken == 0 ? 0 : ahead_ms(state) + (taken + limit_ - 1) / limit_;
    }

    /* Requests in 1/1000, rounded up, of `used`. */
    uint64_t thousandths(uint64_t taken) const
    {
        return taken / window_ms_ * 1000
               + (taken % window_ms_ * 1000 + window_ms_ - 1) / window_ms_;
    }

    uint64_t window_ms_;
    uint64_t now_ms_;
    uint32_t limit_;
    unsigned time_bits_;
    bool is_queue_;
    uint32_t burst_;
};

} // namespace limit_sliding

#endif
