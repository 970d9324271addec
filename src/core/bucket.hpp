/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/describe.hpp"
#include "core/policy.hpp"

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
 * State: a time in 24 to 34 bits, the class of the limit in 3, a form in 2, and
 * in the other 33 to 23 bits `used` as of that time, in that form:
 *
 *     kExact    `used` itself, if there is room for it
 *     kWhole    a whole number of requests
 *     kLine     the number of a line, see below
 *
 * The class is the number of octal digits of the limit, less one.
 *
 * While a bucket is not empty, used + limit x time grows by whole requests and
 * is constant between.  So this sum is rounded up, to a line: a multiple of
 * w/2^f.  As f is the same for all states of a class, the sum stays on lines
 * from then on, and nothing is rounded again until the bucket has been empty.
 * The number of the line is kept less limit x time, which is known.  A request
 * under another limit finds a line of that limit, less than a 2^f-th of a
 * request off.
 *
 * Times are told apart over four times as long as a bucket may take to fill.
 * So a burst counts only as far as it runs off in 2^32 ms, 49 days.
 *
 * The limit may differ from one request to the next: `used` is in requests, so
 * it means the same under either.  A higher limit may have admitted more than
 * this one's bucket holds.  That excess, in whole ms that it takes to run off,
 * is set aside: the bucket is no more than empty.  What then is admitted must
 * not shorten the excess.  So it is recorded as of the time when the bucket was
 * empty, had it been admitted then; what has elapsed since may run off yet.
 *
 * An object is this algorithm at one moment, under one limit.
 */
class Bucket {
public:
    Bucket(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : window_ms_(policy.window_ms), now_ms_(now_ms), limit_(limit),
          time_bits_(time_bits(policy)), is_queue_(is_queue(policy)), burst_(policy.burst) {}

    /* Returns the requests that it holds.  The division is for bursts that take
     * longer to run off than times are told apart. */
    uint64_t capacity() const {
        if (!is_queue_ && burst_ == 0) { return limit_; }

        uint64_t requests = burst_ + uint64_t{is_queue_};
        uint64_t runs_off = uint64_t{limit_} << (time_bits_ - 2);

        return requests * window_ms_ <= runs_off ? requests : runs_off / window_ms_;
    }

    /* Returns a number that advances by the time in which any bucket that is
     * not used becomes empty. */
    uint64_t epoch() const { return now_ms_ >> (time_bits_ - 2); }

    /* Returns how much a state constrains its key; 0: as little as no state.
     * Keys may have limits of their own, so a state is over only when it is so
     * under any limit.  Otherwise the rank is the share of the bucket that is
     * used, as far as the class of its limit tells. */
    uint64_t rank(uint64_t state) const {
        uint64_t elapsed = elapsed_ms(state);

        if (elapsed >= longest_ms()) { return 0; }

        uint64_t pace = pace_of(state);
        uint64_t taken = then(state);
        uint64_t left = taken - std::min(taken, elapsed * pace);

        return 1 + (has_burst() ? left : left / pace);
    }

    /* Returns what is used, x w.  An excess is left out: no bucket is more than
     * empty. */
    uint64_t used(uint64_t state) const { return std::min(level(state), full()); }

    double share(uint64_t state) const {
        return static_cast<double>(used(state)) / static_cast<double>(full());
    }

    /* Decides on most states: those that have `used` itself, without an excess,
     * and room for it with the request.  False: admit() has to. */
    [[gnu::always_inline]] bool admit_ready(uint64_t state, uint64_t cost, uint64_t *next,
                                            bool *is_admitted) const {
        uint64_t value = state & value_mask();

        if (form_of(state) != kExact || value > full()
            || value + cost * window_ms_ > value_mask()) {
            return false;
        }

        *is_admitted = admit<true>(state, cost, next);
        return true;
    }

    template <bool kPlain = false>
    [[gnu::always_inline]] bool admit(uint64_t state, uint64_t cost, uint64_t *next) const {
        if (cost == 0) {
            *next = state;
            return true;
        }

        uint64_t before = kPlain ? state & value_mask() : then(state);
        uint64_t excess = kPlain ? 0 : excess_of(before);
        uint64_t taken = left_of(before - excess, state);

        if (cost > capacity() || taken > full() - cost * window_ms_) { return false; }

        uint64_t wanted = taken + cost * window_ms_;

        if (kPlain) {
            *next = pack_value(time_now(state), class_of_limit(), wanted);
        } else if (excess == 0) {
            *next = pack(time_now(state), class_of_limit(), wanted);
        } else {
            *next = pack_with_excess(state, taken, wanted);
        }

        return true;
    }

    /* Takes back a cost; `recorded` is the state as its admission left it.
     * What has run off since is not given back: all of the time up to the
     * latest admission counts, but for the time in which what was used before
     * had to run off. */
    uint64_t refund(uint64_t state, uint64_t recorded, uint64_t cost) const {
        uint64_t given = cost * window_ms_;
        uint64_t before = then(recorded) - std::min(then(recorded), given);
        uint64_t ran_off = between_ms(time_of(recorded), time_of(state)) * limit_;
        uint64_t taken = then(state);

        given -= std::min(given, ran_off - std::min(ran_off, before));

        return pack(time_of(state), class_of(state), taken - std::min(taken, given));
    }

    /* Describes the state as describe_usage() does. */
    void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        uint64_t taken = level(state);
        Usage usage = {limit_, capacity(), window_ms_, std::min(taken, full()),
                       is_queue_ ? window_ms_ : full()};

        auto wait = [&](uint64_t room) { return wait_ms(state, taken - room * window_ms_); };

        describe_usage(usage, cost, wait, verdict);
    }

    /* Returns the verdict's retry_after_ms alone. */
    uint64_t retry_after_ms(uint64_t state, uint64_t cost) const {
        if (cost > capacity()) { return kNever; }

        uint64_t taken = level(state);
        uint64_t room = full() - cost * window_ms_;

        return std::min(taken, full()) > room ? wait_ms(state, taken - room) : 0;
    }

    /* Adds what a request that was admitted to a queue has to wait, by the
     * state after it. */
    void describe_queued(uint64_t state, uint64_t cost, Verdict *verdict) const {
        uint64_t ahead = ahead_of(state, cost);

        if (is_queue_ && cost > 0) {
            verdict->delay_ms = delay_ms(state, cost);
            verdict->excess = thousandths(ahead + (cost - 1) * window_ms_, window_ms_);
        }
    }

    /* Returns how long such a request is held back: until those ahead of it
     * have left. */
    uint64_t delay_ms(uint64_t state, uint64_t cost) const {
        /* most found the queue empty, which takes little to tell */
        if (form_of(state) == kExact && (state & value_mask()) <= cost * window_ms_) { return 0; }

        return cost == 0 ? 0 : wait_ms(state, ahead_of(state, cost));
    }

    /* Returns when the state is over, of whatever key under whatever limit. */
    uint64_t expires_ms(uint64_t state) const {
        uint64_t elapsed = elapsed_ms(state);

        return longest_ms() - std::min(elapsed, longest_ms());
    }

private:
    static constexpr unsigned kStateBits = 62;
    static constexpr unsigned kFormBits = 2;
    static constexpr unsigned kClassBits = 3;
    static constexpr unsigned kClassDigit = 3; /* octal */
    static constexpr unsigned kTimeBitsMin = 24;
    static constexpr unsigned kTimeBitsMax = 34;
    static constexpr unsigned kWholeBitsMax = 22;

    /* No form makes a state of all ones, which is reserved for the table. */
    enum Form : uint64_t { kExact = 0, kWhole, kLine };

    static_assert(kWindowMaxMs <= 1ULL << (kTimeBitsMax - 2),
                  "the longest window has time to fill a bucket");
    static_assert(kLimitMax + 1 < 1u << kWholeBitsMax, "and it holds no more whole requests");
    static_assert(kWholeBitsMax < kStateBits - kTimeBitsMax - kClassBits - kFormBits,
                  "for which there is room, and for half ones");
    static_assert(kLimitMax >> (kClassDigit << kClassBits) == 0,
                  "a limit has no more octal digits than there are classes");
    static_assert(kLimitMax <= UINT64_MAX >> kTimeBitsMax,
                  "what runs off in the longest time fits");

    static bool is_queue(const Policy &policy) {
        return policy.algorithm == Algorithm::kLeakyBucket;
    }

    static unsigned bits_of(uint64_t n) {
        return 63 ^ static_cast<unsigned>(__builtin_clzll(n << 1 | 1));
    }

    static unsigned time_bits(const Policy &policy) {
        unsigned bits = bits_of(policy.window_ms) + bits_of(policy.burst) + 2;

        return std::min(std::max(bits, kTimeBitsMin), kTimeBitsMax);
    }

    /*
     * Returns the time in which a full bucket becomes empty, under any limit.
     */
    uint64_t longest_ms() const {
        uint64_t requests = std::max(burst_ + uint64_t{is_queue_}, uint64_t{1});

        return std::min(requests * window_ms_, uint64_t{1} << (time_bits_ - 2));
    }

    uint64_t full() const { return capacity() * window_ms_; }

    bool has_burst() const { return burst_ != 0 || is_queue_; }

    unsigned value_bits() const { return kStateBits - kFormBits - kClassBits - time_bits_; }

    uint64_t value_mask() const { return (1ULL << value_bits()) - 1; }
    uint64_t time_mask() const { return (1ULL << time_bits_) - 1; }

    uint64_t form_of(uint64_t state) const {
        return state >> value_bits() & ((1u << kFormBits) - 1);
    }

    uint64_t class_of(uint64_t state) const {
        return state >> (value_bits() + kFormBits) & ((1u << kClassBits) - 1);
    }

    uint64_t time_of(uint64_t state) const {
        return state >> (value_bits() + kFormBits + kClassBits);
    }

    uint64_t class_of_limit() const { return (bits_of(limit_) - 1) / kClassDigit; }

    /* Returns the limit under which a state was made, or the least of its class
     * if that is another class than the present limit's. */
    uint64_t pace_of(uint64_t state) const {
        uint64_t limit_class = class_of(state);

        return limit_class == class_of_limit() ? limit_
                                               : uint64_t{1} << (limit_class * kClassDigit);
    }

    /* Returns what was used at the state's time. */
    uint64_t then(uint64_t state) const {
        return form_of(state) == kExact ? state & value_mask() : large_then(state);
    }

    /* Returns the f of the lines of a class: the bits that its whole requests
     * leave. */
    unsigned line_bits(uint64_t limit_class) const {
        uint64_t digits = (limit_class + 1) * kClassDigit;

        return value_bits()
               - (has_burst() ? bits_of(burst_ + uint64_t{is_queue_})
                              : static_cast<unsigned>(std::min<uint64_t>(digits, kWholeBitsMax)));
    }

    /*
     * Returns limit x time modulo the distance of lines, in units of w / 2^f.
     */
    uint64_t phase(uint64_t time, unsigned bits) const {
        return (time * limit_ % window_ms_ << bits) % window_ms_;
    }

    /* Returns what is used at that time, on the line of this number. */
    uint64_t on_line(uint64_t number, uint64_t time, unsigned bits) const {
        return rounded_up((number + 1) * window_ms_ - phase(time, bits), bits);
    }

    [[gnu::noinline]] uint64_t large_then(uint64_t state) const {
        uint64_t value = state & value_mask();

        return form_of(state) == kWhole
                   ? value * window_ms_
                   : on_line(value, time_of(state), line_bits(class_of(state)));
    }

    /* Returns a value with its form, for more than there is room for exactly.
     * Nothing is rounded up past a whole request, so a bucket that holds n
     * requests admits n. */
    [[gnu::noinline]] uint64_t large_value(uint64_t time, uint64_t limit_class,
                                           uint64_t taken) const {
        unsigned bits = line_bits(limit_class);
        uint64_t whole = (taken + window_ms_ - 1) / window_ms_;

        /* the first line that is not below it */
        uint64_t number = (((taken - 1) << bits) + phase(time, bits)) / window_ms_;

        if (number > value_mask() || on_line(number, time, bits) >= whole * window_ms_) {
            return uint64_t{kWhole} << value_bits() | whole;
        }

        return uint64_t{kLine} << value_bits() | number;
    }

    uint64_t pack(uint64_t time, uint64_t limit_class, uint64_t taken) const {
        return pack_value(time, limit_class,
                          taken <= value_mask() ? taken : large_value(time, limit_class, taken));
    }

    /* Makes a state; `value` includes its form. */
    uint64_t pack_value(uint64_t time, uint64_t limit_class, uint64_t value) const {
        uint64_t head = time << kClassBits | limit_class;
        uint64_t state = head << (value_bits() + kFormBits) | value;

        return state == 0 ? 1 : state;
    }

    /* Returns what is used beyond a full bucket, in whole ms that it takes to
     * run off. */
    uint64_t excess_of(uint64_t taken) const {
        return taken <= full() ? 0 : (taken - full()) / limit_ * limit_;
    }

    /*
     * Records an admission to a bucket whose state has an excess.  `taken` is
     * what is used now without it, `wanted` what is used after the admission.
     */
    [[gnu::noinline]] uint64_t pack_with_excess(uint64_t state, uint64_t taken,
                                                uint64_t wanted) const {
        /* no excess is left where the table may have forgotten the state */
        uint64_t rest = elapsed_ms(state) >= longest_ms() ? 0 : left_of(then(state), state) - taken;
        uint64_t excess = (rest + limit_ - 1) / limit_ * limit_;

        if (excess == 0) { return pack(time_now(state), class_of_limit(), wanted); }

        uint64_t since_ms = (full() - wanted + limit_ - 1) / limit_;

        return pack((time_now(state) - since_ms) & time_mask(),
                    std::max(class_of(state), class_of_limit()),
                    wanted + since_ms * limit_ + excess);
    }

    /* Returns what is left now without the excess.  That is set aside in whole
     * ms, so the rest may be a little more than a full bucket. */
    uint64_t level(uint64_t state) const {
        uint64_t before = then(state);

        return left_of(before - excess_of(before), state);
    }

    /* Returns what is left now of what was used at the state's time. */
    uint64_t left_of(uint64_t taken, uint64_t state) const {
        uint64_t ran_off = elapsed_ms(state) * limit_;

        return ran_off > taken ? 0 : taken - ran_off;
    }

    /* Returns the ms from one time to a later one; 0 if that is earlier. */
    uint64_t between_ms(uint64_t from, uint64_t to) const {
        uint64_t elapsed = (to - from) & time_mask();

        return elapsed < 3ULL << (time_bits_ - 2) ? elapsed : 0;
    }

    /* Returns the ms since the state's time; 0 if a worker made it whose clock
     * is ahead of ours. */
    uint64_t elapsed_ms(uint64_t state) const { return between_ms(time_of(state), now_ms_); }

    /* Returns by how many ms that clock is ahead. */
    uint64_t ahead_ms(uint64_t state) const {
        return state == 0 || elapsed_ms(state) != 0 ? 0 : (time_of(state) - now_ms_) & time_mask();
    }

    /* Returns the time of a new state: that of the old one if our clock is
     * behind. */
    uint64_t time_now(uint64_t state) const {
        return state != 0 && elapsed_ms(state) == 0 ? time_of(state) : now_ms_ & time_mask();
    }

    static uint64_t rounded_up(uint64_t n, unsigned shift) {
        return (n + (1ULL << shift) - 1) >> shift;
    }

    /* Returns what was in the queue before a request of this cost, which has
     * joined it. */
    uint64_t ahead_of(uint64_t state, uint64_t cost) const {
        uint64_t taken = used(state);

        return taken - std::min(taken, cost * window_ms_);
    }

    /* Returns the ms, rounded up, until so much has run off a state. */
    uint64_t wait_ms(uint64_t state, uint64_t taken) const {
        return taken == 0 ? 0 : ahead_ms(state) + (taken + limit_ - 1) / limit_;
    }

    uint64_t window_ms_;
    uint64_t now_ms_;
    uint64_t limit_;
    unsigned time_bits_;
    bool is_queue_;
    uint32_t burst_;
};

} // namespace limit_sliding
