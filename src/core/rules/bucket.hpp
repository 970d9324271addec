/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/policy/describe_usage.hpp"
#include "core/policy/policy.hpp"
#include "core/policy/tag_epoch.hpp"

namespace limit_sliding {

/*
 * The state of a bucket in 62 bits: the used units x w at a time.
 *
 *     time 24 .. 34 | class of the limit 3 | form 2 | value 33 .. 23
 *
 * The value is `used` at this time, in one of four forms:
 *
 *     kExact    `used` itself, if there is room for it
 *     kWhole    a whole number of requests
 *     kLine     the number of a line, see below
 *     kWide     the number of a line with f = 0, in 31 bits: its highest bits
 *               are in the lowest bits of the time
 *
 * The class is the number of octal digits of the limit minus one, and 7 for all limits from 2^21
 * on.
 *
 * While a bucket is not empty, the sum used + limit x time grows by whole requests and is constant
 * between requests.  This sum is rounded up to a line: a multiple of w/2^f.  All states of a class
 * have the same f, so the sum stays on lines, and is not rounded again until the bucket has been
 * empty.  The state stores the number of the line minus limit x time.  A request under another
 * limit reads this number as a line of its own limit, at a distance of less than 2^-f requests.
 *
 * From 4,194,304 requests on, f is 0 and the form is kWide.  This form uses low bits of the time,
 * so the time is rounded down by less than 256 ms.  `used` includes the units that drain in
 * between, so the sum is unchanged.  Under another limit these units drain at its rate.  If more
 * than 2^22 requests drain in a ms, `used` at the earlier time would not fit.  Then the time is
 * rounded up, and no units drain before it.
 *
 * With an excess (see Bucket), such a state also is in steps of the time, but has the form kWhole
 * with the highest bit of the value, which no whole number has.  The excess is a multiple of the
 * units that drain in a step, so the remainder tells at which ms of the step the bucket was full.
 *
 * The time wraps after four times the time in which a full bucket drains, or more.  So a burst is
 * capped at the units that drain in 2^32 ms (49 days).
 */
class BucketState {
protected:
    BucketState(const Policy &policy, uint64_t limit)
        : window_ms_(policy.window_ms), limit_(limit), undelayed_(policy.undelayed),
          is_queue_(policy.algorithm == Algorithm::kLeakyBucket),
          size_(policy.burst + uint64_t{is_queue_}),
          time_bits_(time_bits(policy.window_ms, policy.burst)) {}

    /* Sets the window of the states to read. */
    void set_window(uint64_t window_ms) {
        window_ms_ = window_ms;
        time_bits_ = time_bits(window_ms, size_ - uint64_t{is_queue_});
    }

    static constexpr unsigned kStateBits = 62;
    static constexpr unsigned kFormBits = 2;
    static constexpr unsigned kClassBits = 3;
    static constexpr unsigned kClassDigit = 3; /* bits of an octal digit */
    static constexpr unsigned kClassMax = (1u << kClassBits) - 1;
    static constexpr unsigned kTimeBitsMin = 24;
    static constexpr unsigned kTimeBitsMax = 34;
    static constexpr unsigned kWholeBitsMax = 22;
    static constexpr unsigned kWideBits = 31;

    /* A line never has all bits set, because the table reserves this state. */
    static constexpr uint64_t kWideMax = (1ULL << kWideBits) - 2;

    enum Form : uint64_t { kExact = 0, kWhole, kLine, kWide };

    static_assert(kWindowMaxMs <= 1ULL << (kTimeBitsMax - 2),
                  "the longest window has time to fill a bucket");
    static_assert(kWholeBitsMax < kStateBits - kTimeBitsMax - kClassBits - kFormBits,
                  "the value has room for whole requests, and for lines between them");
    static_assert(kLimitMax < 1u << (kWideBits - 1),
                  "a whole number of requests never has the highest bit");
    static_assert(kLimitMax + 1 < kWideMax / 2,
                  "a wide number has room for the units that drain in a step of the time");
    static_assert(kLimitMax <= UINT64_MAX >> kTimeBitsMax,
                  "the units that drain in the longest time fit 64 bits");
    static_assert(kLimitMax + 1 <= UINT64_MAX / 4 / kWindowMaxMs, "the used units fit 64 bits");

    /* Returns the size of the bucket in requests. */
    uint64_t capacity() const { return size_ != 0 ? full() / window_ms_ : limit_; }

    /* Returns the size x w.  The division is only for bursts that are capped. */
    uint64_t full() const {
        if (size_ == 0) { return limit_ * window_ms_; }
        uint64_t all = size_ * window_ms_;
        uint64_t runs_off = limit_ << (time_bits_ - 2);
        return all <= runs_off ? all : runs_off - runs_off % window_ms_;
    }

    /* Returns the size x w under any limit. */
    uint64_t largest() const { return (size_ != 0 ? size_ : kLimitMax) * window_ms_; }

    /* Returns the ms in which a full bucket becomes empty, under any limit. */
    uint64_t longest_ms() const {
        return std::min(std::max(size_, uint64_t{1}) * window_ms_, uint64_t{1} << (time_bits_ - 2));
    }

    unsigned value_bits() const { return kStateBits - kFormBits - kClassBits - time_bits_; }

    uint64_t value_mask() const { return (1ULL << value_bits()) - 1; }
    uint64_t time_mask() const { return (1ULL << time_bits_) - 1; }

    /* Returns the mask of the bits of time that a wide state uses for its value. */
    uint64_t wide_mask() const {
        return (1ULL << (kWideBits - std::min(value_bits(), kWideBits))) - 1;
    }

    uint64_t form_of(uint64_t state) const {
        return state >> value_bits() & ((1u << kFormBits) - 1);
    }

    uint64_t class_of(uint64_t state) const {
        return state >> (value_bits() + kFormBits) & kClassMax;
    }

    /* Returns the time of a state that is not wide. */
    uint64_t exact_time_of(uint64_t state) const {
        return state >> (value_bits() + kFormBits + kClassBits);
    }

    uint64_t time_of(uint64_t state) const {
        bool is_rounded = form_of(state) == kWide || is_aside(state);
        return exact_time_of(state) & (is_rounded ? ~wide_mask() : UINT64_MAX);
    }

    uint64_t class_of_limit() const {
        return std::min<uint64_t>((binary_digits(limit_) - 1) / kClassDigit, kClassMax);
    }

    /* Return the least and the largest limit that a state may have had: the present limit if both
     * have the same class, else the bounds of the state's class. */
    uint64_t pace_of(uint64_t state) const {
        uint64_t limit_class = class_of(state);
        return limit_class == class_of_limit() ? limit_
                                               : uint64_t{1} << (limit_class * kClassDigit);
    }

    uint64_t most_of_class(uint64_t state) const {
        uint64_t limit_class = class_of(state);
        return limit_class == class_of_limit() ? limit_
               : limit_class == kClassMax      ? kLimitMax
                                          : (uint64_t{1} << ((limit_class + 1) * kClassDigit)) - 1;
    }

    /* Returns the used units x w at the state's time. */
    uint64_t then(uint64_t state) const {
        return form_of(state) == kExact ? state & value_mask() : large_then(state);
    }

    uint64_t pack(uint64_t time, uint64_t limit_class, uint64_t taken) const {
        return taken <= value_mask() ? pack_value(time, limit_class, taken)
                                     : pack_large(time, limit_class, taken);
    }

    /* Makes a state of a value that includes its form. */
    uint64_t pack_value(uint64_t time, uint64_t limit_class, uint64_t value) const {
        assert(time <= time_mask() && limit_class <= kClassMax);
        assert(value >> (value_bits() + kFormBits) == 0);
        uint64_t head = time << kClassBits | limit_class;
        uint64_t state = head << (value_bits() + kFormBits) | value;
        return state == 0 ? 1 : state;
    }

    /* Returns true if the excess of the state is in whole steps of the time. */
    bool is_aside(uint64_t state) const {
        return form_of(state) == kWhole && (state & aside_bit()) != 0;
    }

    uint64_t aside_bit() const { return uint64_t{1} << (value_bits() - 1); }

    /* Returns true if pack() rounds the time of so many used units x w. */
    bool has_steps(uint64_t taken) const {
        return wide_mask() != 0 && taken > ((uint64_t{1} << kWholeBitsMax) - 1) * window_ms_;
    }

    /* Returns the units that drain in a step of a wide state's time. */
    uint64_t step() const { return (wide_mask() + 1) * limit_; }

    /* Makes a wide state of a bucket that has used `taken` units at this time, and of an excess
     * besides, which is rounded up to whole steps. */
    uint64_t pack_aside(uint64_t time, uint64_t limit_class, uint64_t taken,
                        uint64_t excess) const {
        uint64_t steps = (std::min(excess, largest() - full()) + step() - 1) / step();
        uint64_t begin = 0;
        uint64_t number = 0;

        /* The sum is rounded up to a line: the excess by whole steps, and `taken` by the rest,
         * which moves the time at which the bucket was full. */
        for (unsigned i = 0; i < 3; i++) {
            uint64_t since_ms = (full() - std::min(full(), taken) + limit_ - 1) / limit_;
            uint64_t above = taken + since_ms * limit_ - full();
            uint64_t full_at = (time - since_ms + above / limit_) & time_mask();

            begin = full_at & ~wide_mask();
            uint64_t all = full() + above % limit_ + (full_at - begin) * limit_ + steps * step();
            number = line_above(all, begin, 0);

            uint64_t more = on_line(number, begin, 0) - all;
            taken += more % step();
            steps += more / step();
        }

        assert(number >> (kWideBits - 1) == 0);
        return pack_form(begin | number >> (value_bits() - 1), limit_class, kWhole,
                         aside_bit() | (number & (aside_bit() - 1)));
    }

    /* Returns the ms from one time to a later one; 0 if `to` is earlier. */
    uint64_t between_ms(uint64_t from, uint64_t to) const {
        uint64_t elapsed = (to - from) & time_mask();
        return elapsed < 3ULL << (time_bits_ - 2) ? elapsed : 0;
    }

    uint64_t window_ms_;
    uint64_t limit_;
    uint64_t undelayed_;
    bool is_queue_;
    uint64_t size_; /* requests that the bucket holds before it is capped; 0: the limit */
    unsigned time_bits_;

private:
    static unsigned time_bits(uint64_t window_ms, uint64_t burst) {
        unsigned bits = binary_digits(window_ms) + binary_digits(burst) + 2;
        return std::min(std::max(bits, kTimeBitsMin), kTimeBitsMax);
    }

    /* Returns f of a class: the number of bits of the value that whole requests leave free. */
    unsigned line_bits(uint64_t limit_class) const {
        uint64_t digits = size_ != 0 ? binary_digits(size_) : (limit_class + 1) * kClassDigit;
        return value_bits() - static_cast<unsigned>(std::min<uint64_t>(digits, kWholeBitsMax));
    }

    /* Returns limit x time modulo the distance of lines, multiplied by 2^f; 0 .. w - 1. */
    uint64_t phase(uint64_t time, unsigned bits) const {
        return (time * limit_ % window_ms_ << bits) % window_ms_;
    }

    /* Returns the used units x w on the line of this number at a time. */
    uint64_t on_line(uint64_t number, uint64_t time, unsigned bits) const {
        uint64_t scaled = (number + 1) * window_ms_ - phase(time, bits);
        return (scaled + (1ULL << bits) - 1) >> bits;
    }

    /* Returns the number of the first line that is not below `taken`. */
    uint64_t line_above(uint64_t taken, uint64_t time, unsigned bits) const {
        return (((taken - 1) << bits) + phase(time, bits)) / window_ms_;
    }

    [[gnu::noinline]] uint64_t large_then(uint64_t state) const {
        uint64_t value = state & value_mask();
        if (is_aside(state)) {
            return on_line(wide_value(state, value_bits() - 1), time_of(state), 0);
        }
        if (form_of(state) == kWhole) { return value * window_ms_; }
        if (form_of(state) == kLine) {
            return on_line(value, time_of(state), line_bits(class_of(state)));
        }
        return on_line(wide_value(state, value_bits()), time_of(state), 0);
    }

    /* Returns the number of a line, of which so many bits are in the value. */
    uint64_t wide_value(uint64_t state, unsigned bits) const {
        uint64_t high = exact_time_of(state) & wide_mask();
        return high << bits | (state & ((uint64_t{1} << bits) - 1));
    }

    /* Makes a state of units that do not fit kExact.  The stored units never exceed the next whole
     * request, so a bucket of n requests admits n; only a wide state with a rounded time may
     * exceed it. */
    [[gnu::noinline]] uint64_t pack_large(uint64_t time, uint64_t limit_class,
                                          uint64_t taken) const {
        uint64_t whole = (taken + window_ms_ - 1) / window_ms_;
        if (whole >> kWholeBitsMax != 0) { return pack_wide(time, limit_class, taken, whole); }
        unsigned bits = line_bits(limit_class);
        uint64_t number = line_above(taken, time, bits);
        bool is_past = number > value_mask() || on_line(number, time, bits) >= whole * window_ms_;
        return pack_form(time, limit_class, is_past ? kWhole : kLine, is_past ? whole : number);
    }

    uint64_t pack_wide(uint64_t time, uint64_t limit_class, uint64_t taken, uint64_t whole) const {
        uint64_t mask = wide_mask();
        uint64_t begin = time & ~mask;
        uint64_t number = line_above(taken + (time - begin) * limit_, begin, 0);

        if (mask == 0 && on_line(number, time, 0) >= whole * window_ms_) {
            return pack_form(time, limit_class, kWhole, whole);
        }

        if (number > kWideMax) {
            begin = (time + mask) & ~mask & time_mask();
            number = line_above(taken, begin, 0);
        }

        return pack_form(begin | number >> value_bits(), limit_class, kWide, number & value_mask());
    }

    uint64_t pack_form(uint64_t time, uint64_t limit_class, Form form, uint64_t value) const {
        return pack_value(time, limit_class, form << value_bits() | value);
    }
};

/*
 * algorithm=token_bucket and leaky_bucket.  Used units drain at the rate of the limit, `limit` in
 * w ms:
 *
 *     used' = max(0, used - limit/w x elapsed)
 *
 * A request of cost c is admitted when used + c <= capacity.  A token bucket holds capacity - used
 * tokens.  In a leaky bucket `used` is the queue: one request leaves at once, up to `burst`
 * requests wait, and a request leaves after all requests before it.
 *
 * `used` is multiplied by w, which makes it an integer.  Only BucketState rounds it up.
 *
 * Requests for one key may have different limits, but `used` is in requests.  So a higher limit
 * may have admitted more than the bucket of the present limit holds.  The surplus, rounded down to
 * the units of whole ms, is the excess.  The present limit sets the excess aside, and its bucket
 * is full at the time of the state.  An admission must keep the excess for higher limits.  So the
 * new state gets the earlier time at which a full bucket would have begun to drain to the used
 * units of now.
 *
 * An object is this algorithm at one moment, under one limit.
 */
class Bucket : BucketState {
public:
    Bucket(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : BucketState(policy, limit), now_ms_(now_ms) {}

    using BucketState::capacity;

    /* Returns the epoch, which lasts at least until any unused bucket is empty. */
    uint64_t epoch() const { return now_ms_ >> (time_bits_ - 2); }

    /* Returns the rank of a state of any key; 0: no state.  The key may have an override, so a
     * state has expired only if it has under any limit.  Otherwise the rank is the used share of
     * the bucket, as estimated from the class of the key's limit. */
    uint64_t rank(uint64_t state) const {
        uint64_t elapsed = elapsed_ms(state);
        if (elapsed >= longest_ms()) { return 0; }
        uint64_t pace = pace_of(state);
        uint64_t taken = then(state);
        uint64_t left = taken - std::min(taken, elapsed * pace);
        return 1 + (size_ != 0 ? left : left / pace);
    }

    /* Returns the rank for a key that has a window of `digits` binary digits, as a share of the
     * zone's window. */
    uint64_t rank_at_all(uint64_t state, unsigned digits) const {
        Bucket own = *this;

        /* the format depends only on the digits */
        own.set_window((uint64_t{1} << digits) - 1);

        uint64_t taken = own.rank(state);

        return taken == 0 ? 0 : 1 + static_cast<uint64_t>(Wide{taken - 1} * window_ms_ >> digits);
    }

    /* Returns the used units x w, without an excess. */
    uint64_t used(uint64_t state) const { return std::min(level(state), full()); }

    double share(uint64_t state) const {
        return static_cast<double>(used(state)) / static_cast<double>(full());
    }

    /* Decides a state in the form kExact without an excess, as most states are.  Returns false if
     * admit() has to decide. */
    [[gnu::always_inline]] bool admit_ready(uint64_t state, uint64_t cost, uint64_t *next,
                                            bool *is_admitted) const {
        uint64_t before = state & value_mask();
        uint64_t more = cost * window_ms_;
        uint64_t most = full();

        if (form_of(state) != kExact || before > most || before + more > value_mask() || state == 0
            || cost == 0) {
            return false;
        }

        uint64_t elapsed = between_ms(exact_time_of(state), now_ms_);
        uint64_t ran_off = elapsed * limit_;
        uint64_t wanted = before - std::min(before, ran_off) + more;

        *is_admitted = wanted <= most;

        if (*is_admitted) {
            *next = pack_value((exact_time_of(state) + elapsed) & time_mask(), class_of_limit(),
                               wanted);
        }

        return true;
    }

    bool admit(uint64_t state, uint64_t cost, uint64_t *next) const {
        if (cost == 0) {
            *next = state;
            return true;
        }

        assert(limit_ >= 1 && limit_ <= kLimitMax && cost <= kCostMax);

        uint64_t before = then(state);
        uint64_t excess = excess_of(before, state);
        uint64_t taken = left_of(before - excess, state);

        if (cost > capacity() || taken > full() - cost * window_ms_) { return false; }

        *next = raised(state, excess, taken, taken + cost * window_ms_);
        return true;
    }

    /* Records a rejected cost as far as the bucket has room. */
    uint64_t record_rejected(uint64_t state, uint64_t cost) const {
        uint64_t more = std::min(cost, capacity()) * window_ms_;
        uint64_t before = then(state);
        uint64_t excess = excess_of(before, state);
        uint64_t taken = left_of(before - excess, state);

        return taken >= full() ? state
                               : raised(state, excess, taken, std::min(full(), taken + more));
    }

    /* Refunds the units of a cost that have not drained.  `recorded` is the state after the
     * admission of the cost.  Units used before this admission drain first.  The drained units are
     * counted until the time of `state`, at the present limit or the largest one that `state` may
     * have had, if that is higher.  The time of a state with an excess may precede its latest
     * admission, so the units are then counted until now.
     *
     * Beside an excess, an admission only moves the time of the state forward, by the time in which
     * the cost drains.  So the refund moves the time back if nothing was admitted since.  Else it
     * only reduces the excess, because a higher limit may have used that time. */
    uint64_t refund(uint64_t state, uint64_t recorded, uint64_t cost) const {
        uint64_t given = cost * window_ms_;
        uint64_t taken = then(state);
        uint64_t excess = excess_of(taken, state);
        bool has_excess = excess != 0;

        if (has_excess && state == recorded) {
            const uint64_t left = left_of(taken - excess, state);
            given = std::min(given, left);
            if (is_aside(state)) {
                return pack_aside(time_now(state), class_of(state), left - given, excess);
            }
            return pack((time_of(state) - given / limit_) & time_mask(), class_of(state),
                        taken - given % limit_);
        }

        uint64_t pace = std::max(limit_, most_of_class(state));
        uint64_t all = then(recorded) - excess_of(then(recorded), recorded);
        uint64_t before = all - std::min(all, given);
        uint64_t ran_off
            = between_ms(time_of(recorded), has_excess ? now_ms_ : time_of(state)) * pace;

        given -= std::min(given, ran_off - std::min(ran_off, before));
        if (is_aside(state) && excess > given) { return without(state, given); }

        taken -= std::min(taken, given);

        /* without an excess the state must have the present time, for the next refund */
        if (has_excess && excess_of(taken, state) == 0) {
            return pack(time_now(state), class_of(state), left_of(taken, state));
        }

        return pack(time_of(state), class_of(state), taken);
    }

    /* Refunds a cost if its admission is unknown. */
    uint64_t give_back(uint64_t state, uint64_t cost) const {
        uint64_t left = left_of(then(state), state);
        uint64_t given = std::min(cost, left / window_ms_ + 1) * window_ms_;
        if (is_aside(state) && excess_of(then(state), state) > given) {
            return without(state, given);
        }
        return pack(time_of(state), class_of(state), then(state) - std::min(given, left));
    }

    /* Describes the state as describe_usage() does. */
    [[gnu::always_inline]] void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        uint64_t most = full();
        Seen seen = see(state, most);
        describe_usage(
            {limit_, capacity(), window_ms_, std::min(seen.taken, most),
             is_queue_ ? window_ms_ : most},
            cost, [&](uint64_t room) { return wait_ms(seen, room * window_ms_); }, verdict);
    }

    [[gnu::always_inline]] uint64_t retry_after_ms(uint64_t state, uint64_t cost) const {
        uint64_t most = full();
        uint64_t more = cost * window_ms_;
        Seen seen = see(state, most);
        if (more > most) { return kNever; }
        return std::min(seen.taken, most) + more <= most ? 0 : wait_ms(seen, most - more);
    }

    /* Sets the delay and the excess of a queued request; `state` includes the request. */
    void describe_queued(uint64_t state, uint64_t cost, Verdict *verdict) const {
        uint64_t ahead = ahead_of(state, cost);
        if (cost > 0) {
            verdict->delay_ms = delay_ms(state, cost);
            verdict->excess = thousandths(ahead + (cost - 1) * window_ms_, window_ms_);
        }
    }

    /* Returns the ms until only `undelayed` of the requests before an admitted one are left in the
     * queue, rounded down as limit_req does. */
    [[gnu::always_inline]] uint64_t delay_ms(uint64_t state, uint64_t cost) const {
        /* most requests find an empty queue */
        return form_of(state) == kExact && (state & value_mask()) <= cost * window_ms_
                   ? 0
                   : queued_ms(state, cost);
    }

    /* Returns the ms until the state of any key has expired under any limit. */
    uint64_t expires_ms(uint64_t state) const {
        uint64_t elapsed = elapsed_ms(state);
        return longest_ms() - std::min(elapsed, longest_ms());
    }

private:
    /* The used units of a state at this moment. */
    struct Seen {
        uint64_t taken;    /* used units x w, without the excess */
        uint64_t ahead_ms; /* ms by which the state's clock is ahead of this worker's */
    };

    /* `most` is full().  Most states have the form kExact and no excess. */
    [[gnu::always_inline]] Seen see(uint64_t state, uint64_t most) const {
        uint64_t before = state & value_mask();
        if (form_of(state) != kExact || before > most) { return see_large(state); }
        uint64_t elapsed = (now_ms_ - exact_time_of(state)) & time_mask();
        if (elapsed >= 3ULL << (time_bits_ - 2)) {
            return {before, state == 0 ? 0 : time_mask() + 1 - elapsed};
        }
        return {before - std::min(before, elapsed * limit_), 0};
    }

    [[gnu::noinline]] Seen see_large(uint64_t state) const {
        return {level(state), ahead_ms(state)};
    }

    /* Returns the ms until at most `room` units x w are used, rounded up.  Now, more are used. */
    uint64_t wait_ms(const Seen &seen, uint64_t room) const {
        assert(seen.taken > room);
        return seen.ahead_ms + (seen.taken - room + limit_ - 1) / limit_;
    }

    [[gnu::noinline]] uint64_t queued_ms(uint64_t state, uint64_t cost) const {
        uint64_t ahead = ahead_of(state, cost);
        uint64_t free = undelayed_ * window_ms_;
        return cost == 0 || ahead <= free ? 0 : ahead_ms(state) + (ahead - free) / limit_;
    }

    /* Returns the units beyond a full bucket, rounded down to the units of whole ms, or of whole
     * steps if is_aside().  Another wide state may hold more than a full bucket, because its time
     * may precede the admission. */
    uint64_t excess_of(uint64_t taken, uint64_t state) const {
        if (is_aside(state)) { return taken <= full() ? 0 : (taken - full()) / step() * step(); }

        uint64_t most = full() + (form_of(state) == kWide ? wide_mask() * limit_ : 0);
        return taken <= most ? 0 : (taken - most) / limit_ * limit_;
    }

    /* Returns the state after an admission raises the used units from `taken` to `wanted`, both
     * without the excess. */
    [[gnu::always_inline]] uint64_t raised(uint64_t state, uint64_t excess, uint64_t taken,
                                           uint64_t wanted) const {
        return excess == 0 ? pack(time_now(state), class_of_limit(), wanted)
                           : pack_with_excess(state, taken, wanted);
    }

    /* Records an admission for a state with an excess.  `taken` and `wanted` are the used units
     * before and after, without the excess. */
    [[gnu::noinline]] uint64_t pack_with_excess(uint64_t state, uint64_t taken,
                                                uint64_t wanted) const {
        /* the table may have evicted states of this age, so the excess ends */
        uint64_t rest = elapsed_ms(state) >= longest_ms() ? 0 : left_of(then(state), state) - taken;
        uint64_t excess = (rest + limit_ - 1) / limit_ * limit_;

        if (excess == 0) { return pack(time_now(state), class_of_limit(), wanted); }

        assert(wanted <= full());

        uint64_t since_ms = (full() - wanted + limit_ - 1) / limit_;
        uint64_t all = wanted + since_ms * limit_ + excess;
        uint64_t limit_class = std::max(class_of(state), class_of_limit());

        /* The excess was rounded up, but no limit admits more than this.  The bucket then was full
         * with another fraction of a ms, in which it must not have drained more. */
        if (all > largest()) {
            since_ms -= (largest() - full()) % limit_ < wanted + since_ms * limit_ - full();
            all = largest();
        }

        /* An excess of less than a request is mostly the rounding of a state without one, and so is
         * any if no limit has a larger bucket. */
        return has_steps(all) && largest() > full() && (is_aside(state) || rest >= window_ms_)
                   ? pack_aside(time_now(state), limit_class, wanted, rest)
                   : pack((time_now(state) - since_ms) & time_mask(), limit_class, all);
    }

    /* Returns a state with is_aside() whose excess is reduced by less than all of it. */
    uint64_t without(uint64_t state, uint64_t given) const {
        const uint64_t excess = excess_of(then(state), state);

        return pack_aside(time_now(state), class_of(state), level(state), excess - given);
    }

    /* Returns the units that are used now, without the excess.  Rounding may raise them a little
     * above a full bucket. */
    uint64_t level(uint64_t state) const {
        uint64_t before = then(state);
        return left_of(before - excess_of(before, state), state);
    }

    /* Returns how many of the units `taken` at the state's time have not drained yet. */
    uint64_t left_of(uint64_t taken, uint64_t state) const {
        uint64_t ran_off = elapsed_ms(state) * limit_;
        return ran_off > taken ? 0 : taken - ran_off;
    }

    /* Returns the ms since the state's time; 0 if the state is ahead of this worker's clock. */
    uint64_t elapsed_ms(uint64_t state) const { return between_ms(time_of(state), now_ms_); }

    /* Returns the ms by which the time of a state other than 0 is ahead of this worker's clock. */
    uint64_t ahead_ms(uint64_t state) const {
        assert(state != 0);
        return elapsed_ms(state) != 0 ? 0 : (time_of(state) - now_ms_) & time_mask();
    }

    /* Returns the time for a new state: now, or the present state's time if that is later. */
    uint64_t time_now(uint64_t state) const {
        return state != 0 && elapsed_ms(state) == 0 ? time_of(state) : now_ms_ & time_mask();
    }

    /* Returns the units x w in the queue ahead of its last request, which has this cost. */
    uint64_t ahead_of(uint64_t state, uint64_t cost) const {
        uint64_t taken = used(state);
        return taken - std::min(taken, cost * window_ms_);
    }

    uint64_t now_ms_;
};

} // namespace limit_sliding
