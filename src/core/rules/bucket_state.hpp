/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

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
 * The time wraps after four times the time in which a full bucket drains, or more.  So a burst is
 * capped at the units that drain in 2^32 ms (49 days).
 */
class BucketState {
protected:
    BucketState(const Policy &policy, uint64_t limit)
        : window_ms_(policy.window_ms), limit_(limit), burst_(policy.burst),
          undelayed_(policy.undelayed), is_queue_(policy.algorithm == Algorithm::kLeakyBucket),
          time_bits_(time_bits(policy.window_ms, policy.burst)) {}

    /* Sets the window of the states to read. */
    void set_window(uint64_t window_ms) {
        window_ms_ = window_ms;
        time_bits_ = time_bits(window_ms, burst_);
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
                  "there is room for so many whole requests, and for half ones");
    static_assert(kLimitMax < 1u << (kWideBits - 1),
                  "no whole requests reach the highest bit that they may have");
    static_assert(kLimitMax + 1 < kWideMax / 2,
                  "and in a wide number for what runs off in the time that it lacks");
    static_assert(kLimitMax <= UINT64_MAX >> kTimeBitsMax,
                  "what runs off in the longest time fits");
    static_assert(kLimitMax + 1 <= UINT64_MAX / 4 / kWindowMaxMs, "and so does what is used");

    /* Returns the size of the bucket in requests. */
    uint64_t capacity() const { return has_burst() ? full() / window_ms_ : limit_; }

    /* Returns the size x w.  The division is only for bursts that are capped. */
    uint64_t full() const {
        if (!has_burst()) { return limit_ * window_ms_; }
        uint64_t all = (burst_ + uint64_t{is_queue_}) * window_ms_;
        uint64_t runs_off = limit_ << (time_bits_ - 2);
        return all <= runs_off ? all : runs_off - runs_off % window_ms_;
    }

    bool has_burst() const { return burst_ != 0 || is_queue_; }

    /* Returns the ms in which a full bucket becomes empty, under any limit. */
    uint64_t longest_ms() const {
        uint64_t requests = std::max(burst_ + uint64_t{is_queue_}, uint64_t{1});
        return std::min(requests * window_ms_, uint64_t{1} << (time_bits_ - 2));
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
        return exact_time_of(state) & (form_of(state) == kWide ? ~wide_mask() : UINT64_MAX);
    }

    uint64_t class_of_limit() const { return class_of_pace(limit_); }

    static uint64_t class_of_pace(uint64_t limit) {
        return std::min<uint64_t>((binary_digits(limit) - 1) / kClassDigit, kClassMax);
    }

    /* Returns the least limit that a state may have had: the present limit if both have the same
     * class, else the least limit of the state's class. */
    uint64_t pace_of(uint64_t state) const {
        uint64_t limit_class = class_of(state);
        return limit_class == class_of_limit() ? limit_
                                               : uint64_t{1} << (limit_class * kClassDigit);
    }

    /* Returns the largest limit that a state may have had: the present limit if both have the same
     * class, else the largest limit of the state's class. */
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

    /* Returns the ms from one time to a later one; 0 if `to` is earlier. */
    uint64_t between_ms(uint64_t from, uint64_t to) const {
        uint64_t elapsed = (to - from) & time_mask();
        return elapsed < 3ULL << (time_bits_ - 2) ? elapsed : 0;
    }

    uint64_t window_ms_;
    uint64_t limit_;
    uint64_t burst_;
    uint64_t undelayed_;
    bool is_queue_;
    unsigned time_bits_;

private:
    static unsigned time_bits(uint64_t window_ms, uint64_t burst) {
        unsigned bits = binary_digits(window_ms) + binary_digits(burst) + 2;
        return std::min(std::max(bits, kTimeBitsMin), kTimeBitsMax);
    }

    /* Returns f of a class: the number of bits of the value that whole requests leave free. */
    unsigned line_bits(uint64_t limit_class) const {
        uint64_t digits = has_burst() ? binary_digits(burst_ + uint64_t{is_queue_})
                                      : (limit_class + 1) * kClassDigit;
        return value_bits() - static_cast<unsigned>(std::min<uint64_t>(digits, kWholeBitsMax));
    }

    /* Returns limit x time modulo the distance of lines, multiplied by 2^f; 0 .. w - 1. */
    uint64_t phase(uint64_t time, unsigned bits) const {
        return (time * limit_ % window_ms_ << bits) % window_ms_;
    }

    /* Returns the used units x w on the line of this number at a time. */
    uint64_t on_line(uint64_t number, uint64_t time, unsigned bits) const {
        return rounded_up((number + 1) * window_ms_ - phase(time, bits), bits);
    }

    /* Returns the number of the first line that is not below `taken`. */
    uint64_t line_above(uint64_t taken, uint64_t time, unsigned bits) const {
        return (((taken - 1) << bits) + phase(time, bits)) / window_ms_;
    }

    static uint64_t rounded_up(uint64_t n, unsigned shift) {
        return (n + (1ULL << shift) - 1) >> shift;
    }

    [[gnu::noinline]] uint64_t large_then(uint64_t state) const {
        uint64_t value = state & value_mask();
        if (form_of(state) == kWhole) { return value * window_ms_; }
        if (form_of(state) == kLine) {
            return on_line(value, time_of(state), line_bits(class_of(state)));
        }
        uint64_t high = exact_time_of(state) & wide_mask();
        return on_line(high << value_bits() | value, time_of(state), 0);
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

} // namespace limit_sliding
