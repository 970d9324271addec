/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <utility>

#include "core/rules/counter_kinds.hpp"

namespace limit_sliding {

/*
 * The format of a counter's counts in 44 bits, for one of kCounterKinds.  A window of n parts
 * reaches into n + 1 parts of time, and each part has a count:
 *
 *     fields    a field of CounterKind::bits for each part, the newest lowest.
 *               With one part, the field of the older part has the rest of the
 *               44 bits, and counts multiples of 2^rounding.
 *     string    from the highest 1 on, the oldest part first: a 1 where a part
 *               begins, then a 0 for each request in it
 *
 * A string is for limits below n, and has room for the limit in all parts together.
 */
class CounterFormat {
public:
    explicit constexpr CounterFormat(const CounterKind &kind)
        : kind_(kind), even_fields_(0), odd_fields_(0), every_lane_(0) {
        for (unsigned i = 0; i <= kind.parts && kind.bits != 0; i += 2) {
            uint64_t field = ((1ULL << kind.bits) - 1) << (i * kind.bits);
            even_fields_ |= field;
            odd_fields_ |= i < kind.parts ? field : 0;
            every_lane_ |= 1ULL << (i * kind.bits);
        }
    }

    constexpr unsigned parts() const { return kind_.parts; }
    constexpr bool is_string() const { return kind_.bits == 0; }

    uint64_t none() const { return is_string() ? (2ULL << parts()) - 1 : 0; }

    uint64_t total(uint64_t counts) const {
        if (is_string()) { return length_of(counts) - parts() - 1; }

        if (parts() == 1) { return newest(counts) + oldest(counts); }

        /* each lane gets the sum of two fields; the highest lane of the product is the sum of all
         * lanes */
        unsigned lane_bits = 2u * kind_.bits;
        uint64_t lanes = (counts & even_fields_) + (counts >> kind_.bits & odd_fields_);

        return lanes * every_lane_ >> (parts() / 2 * lane_bits) & ((1ULL << lane_bits) - 1);
    }

    /* Returns the count of the newest part.  The format must not be a string. */
    uint64_t newest(uint64_t counts) const { return counts & field_mask(); }

    /* Returns the count of the oldest part.  The format must not be a string. */
    uint64_t oldest(uint64_t counts) const {
        if (parts() == 1) { return counts >> kind_.bits << kind_.rounding; }
        return counts >> (parts() * kind_.bits) & field_mask();
    }

    /* Adds to the newest part, which must have room. */
    uint64_t add(uint64_t counts, uint64_t cost) const {
        assert(is_string() ? length_of(counts) + cost <= 44
                           : newest(counts) + cost <= field_mask());
        if (is_string()) { return counts << cost; }
        return counts + cost;
    }

    /* Removes requests from the newest part.  Returns false if it has fewer. */
    bool take(uint64_t cost, uint64_t *counts) const {
        if (!is_string()) {
            if (newest(*counts) < cost) { return false; }

            *counts -= cost;
            return true;
        }

        if (*counts == 0 || cost > static_cast<unsigned>(__builtin_ctzll(*counts))) {
            return false;
        }

        *counts >>= cost;
        return true;
    }

    /* Returns the counts after `begun` further parts have begun. */
    uint64_t age(uint64_t counts, uint64_t begun) const {
        if (begun > parts()) { return none(); }
        if (is_string()) { return without_oldest(counts, begun) << begun | ((1ULL << begun) - 1); }
        if (parts() == 1) { return begun == 0 ? counts : older_field(newest(counts)); }
        return counts << (begun * kind_.bits) & ((1ULL << ((parts() + 1) * kind_.bits)) - 1);
    }

    /* Returns the number of parts before the first one that at most `room` requests follow; `room`
     * is less than the total.  For fields, sets the count of this part and the newer requests. */
    [[gnu::always_inline]] uint64_t find(uint64_t counts, uint64_t room, uint64_t *count,
                                         uint64_t *newer) const {
        *newer = total(counts);
        if (is_string()) { return find_in_string(counts, *newer - room); }
        unsigned i = 0;
        for (;; i++) {
            *count = field(counts, i);
            *newer -= *count;
            if (*newer <= room) { return i; }
        }
    }

    /* Writes the counts of parts() + 1 parts, the oldest first. */
    void decode(uint64_t counts, uint64_t *part) const {
        unsigned n = parts();

        if (!is_string()) {
            for (unsigned i = 0; i <= n; i++) {
                part[i] = field(counts, i);
            }

            return;
        }

        std::fill_n(part, n + 1, 0);

        for (unsigned i = n; counts != 0; counts >>= 1) {
            if ((counts & 1) == 0) {
                part[i]++;
            } else {
                i--;
            }
        }
    }

    /* Encodes counts that fit; the inverse of decode(). */
    uint64_t encode(const uint64_t *part) const {
        unsigned n = parts();
        uint64_t counts = 0;

        if (is_string()) {
            for (unsigned i = 0; i <= n; i++) {
                counts = (counts << 1 | 1) << part[i];
            }

            return counts;
        }

        if (n == 1) { return older_field(part[0]) | part[1]; }

        for (unsigned i = 0; i <= n; i++) {
            counts = counts << kind_.bits | part[i];
        }

        return counts;
    }

    /* Returns false for damaged memory: a string must have a 1 for each part. */
    bool is_valid(uint64_t counts) const { return !is_string() || ones_of(counts) == parts() + 1; }

    bool fits(const uint64_t *part) const {
        uint64_t most = kind_.limit_max;
        uint64_t sum = 0;
        for (unsigned i = 0; i <= parts(); i++) {
            if (part[i] > most) { return false; }
            sum += part[i];
        }
        return !is_string() || sum <= most;
    }

private:
    /* Returns the number of ones.  A builtin could call libgcc. */
    static unsigned ones_of(uint64_t counts) {
        uint64_t pairs = counts - (counts >> 1 & 0x5555555555555555);
        uint64_t fours = (pairs & 0x3333333333333333) + (pairs >> 2 & 0x3333333333333333);
        uint64_t bytes = (fours + (fours >> 4)) & 0x0f0f0f0f0f0f0f0f;
        return static_cast<unsigned>(bytes * 0x0101010101010101 >> 56);
    }

    /* Returns the length in bits.  Damaged memory may have 0, for which clz is not defined. */
    static unsigned length_of(uint64_t counts) {
        return 1 + (63 ^ static_cast<unsigned>(__builtin_clzll(counts | 1)));
    }

    uint64_t field_mask() const { return (1ULL << kind_.bits) - 1; }

    /* Returns the count of part i; 0 is the oldest. */
    uint64_t field(uint64_t counts, unsigned i) const {
        return i == 0 ? oldest(counts) : counts >> ((parts() - i) * kind_.bits) & field_mask();
    }

    uint64_t older_field(uint64_t count) const {
        return (count + (1ULL << kind_.rounding) - 1) >> kind_.rounding << kind_.bits;
    }

    /* Removes the oldest parts of a string. */
    static uint64_t without_oldest(uint64_t counts, uint64_t parts) {
        uint64_t length = length_of(counts);
        uint64_t requests = counts ^ ((1ULL << length) - 1);
        uint64_t left = length - std::min(length, parts);

        /* the highest request is in a removed part if fewer than `parts` parts begin after it */
        while (left > 0 && requests != 0 && length_of(requests) >= left) {
            requests ^= 1ULL << (length_of(requests) - 1);
            left--;
        }

        return counts & ((1ULL << left) - 1);
    }

    /* Returns the part of the n-th request, n >= 1; both are counted from the oldest. */
    static uint64_t find_in_string(uint64_t counts, uint64_t n) {
        unsigned length = length_of(counts);
        uint64_t requests = counts ^ ((1ULL << length) - 1);
        for (uint64_t i = 1; i < n && requests != 0; i++) {
            requests ^= 1ULL << (length_of(requests) - 1);
        }
        return length - length_of(requests) - n;
    }

    CounterKind kind_;
    uint64_t even_fields_; /* mask of the newest field and of each second field from there on */
    uint64_t odd_fields_;  /* mask of the other fields, shifted by one field */
    uint64_t every_lane_;  /* the lowest bit of each lane of two fields */
};

template <unsigned... kKinds>
constexpr auto counter_formats(std::integer_sequence<unsigned, kKinds...>) {
    return std::array{CounterFormat(kCounterKinds[kKinds])...};
}

/* The formats of all kinds, by number. */
constexpr auto kCounterFormats
    = counter_formats(std::make_integer_sequence<unsigned, kCounterKindsLength>());

/* The state of a counter in 62 bits (counter.hpp). */
struct CounterState {
    static constexpr unsigned kCountBits = 44;
    static constexpr unsigned kPartBits = 13;
    static constexpr unsigned kHeadShift = kCountBits + 1;
    static constexpr uint64_t kPartMask = (1u << kPartBits) - 1;

    /* The largest age of a state in parts: two epochs of up to 64 windows, and one window.  A
     * larger age means that the state is ahead of this worker's clock. */
    static constexpr uint64_t kOldest = (2 * 64 + 1) * kCounterPartsMax;

    static_assert(kOldest + kOldest / 4 < kPartMask, "a state must not wrap");
    /* No counts of the last kind set all bits, because the table reserves this state. */
    static_assert(kCounterKindsLength == 15 && kLimitMax + 1 < 1u << 30,
                  "a kind is any number of 4 bits but 0");

    static const CounterFormat &format(unsigned kind) {
        assert(kind < kCounterKindsLength);
        return kCounterFormats[kind];
    }

    /* Returns the epoch, which has 32 to 64 windows. */
    static uint64_t epoch_of(uint64_t now_ms, uint64_t window_ms) {
        return now_ms >> (69 - __builtin_clzll(window_ms));
    }

    static uint64_t counts_of(uint64_t state) { return state & ((1ULL << kCountBits) - 1); }

    static bool is_near(uint64_t state) { return (state >> kCountBits & 1) != 0; }

    /* Returns the kind of a state; of the state 0, a kind in which 0 encodes no requests. */
    static unsigned kind_of(uint64_t state) {
        return state == 0 ? kCounterWhole
                          : static_cast<unsigned>(state >> (kHeadShift + kPartBits)) - 1;
    }

    /* Returns the state, or 0 if memory was damaged. */
    static uint64_t valid(uint64_t state) {
        unsigned kind = kind_of(state);

        return kind < kCounterKindsLength && format(kind).is_valid(counts_of(state)) ? state : 0;
    }

    /* Returns how many parts have begun since a state's newest part.  An age above kOldest means
     * that the state is kPartMask + 1 - age parts ahead. */
    static uint64_t age(uint64_t state, uint64_t part) {
        return (part - (state >> kHeadShift)) & kPartMask;
    }

    /* Returns the highest bits of a state: its kind and newest part. */
    static uint64_t head(unsigned kind, uint64_t part) {
        return uint64_t{kind + 1} << kPartBits | (part & kPartMask);
    }

    static uint64_t pack(unsigned kind, uint64_t part, bool is_near, uint64_t counts) {
        assert(kind < kCounterKindsLength && counts >> kCountBits == 0);
        return (head(kind, part) << 1 | uint64_t{is_near}) << kCountBits | counts;
    }
};

} // namespace limit_sliding
