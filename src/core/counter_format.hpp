/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/counter_kinds.hpp"

namespace limit_sliding {

/*
 * The counts of the n + 1 parts of time that a window of n parts reaches into,
 * in 44 bits, in the format of one of kCounterKinds:
 *
 *     fields    a field of so many bits for each part, the newest lowest.  With
 *               one part, the older field has what the newer one leaves of the
 *               44 bits, and is a multiple of 2^rounding.
 *     a string  from the highest 1 on, the oldest part first: a 1 where a part
 *               begins, then a 0 for each request in it
 *
 * A string serves limits that are less than n, and has room for so many
 * requests in all of its parts together.  0 has no counts in any format.
 */
class CounterFormat {
public:
    static constexpr unsigned kBits = 44;
    static constexpr uint64_t kMask = (1ULL << kBits) - 1;

    explicit constexpr CounterFormat(const CounterKind &kind) : kind_(kind) {}

    unsigned parts() const { return kind_.parts; }
    bool is_string() const { return kind_.bits == 0; }

    /* Returns the sum of all counts. */
    uint64_t total(uint64_t counts) const {
        if (is_string()) { return counts == 0 ? 0 : length_of(counts) - parts() - 1; }

        if (parts() == 1) { return (counts & field_mask()) + oldest(counts); }

        uint64_t sum = 0;

        for (; counts != 0; counts >>= kind_.bits) {
            sum += counts & field_mask();
        }

        return sum;
    }

    /* Returns the count of the oldest part; not of a string. */
    uint64_t oldest(uint64_t counts) const {
        return counts >> (parts() * kind_.bits) << kind_.rounding;
    }

    /* Adds to the newest part, which has room for it. */
    uint64_t add(uint64_t counts, uint64_t cost) const {
        if (is_string()) { return (counts == 0 ? none() : counts) << cost; }

        return counts + cost;
    }

    /* Returns the counts after so many more parts have begun. */
    uint64_t age(uint64_t counts, uint64_t begun) const {
        if (begun > parts() || counts == 0) { return 0; }

        if (is_string()) {
            for (uint64_t i = 0; i < begun; i++) {
                counts ^= 1ULL << (length_of(counts) - 1);
            }

            return counts << begun | ((1ULL << begun) - 1);
        }

        if (parts() == 1) { return begun == 0 ? counts : older_field(counts & field_mask()); }

        return counts << (begun * kind_.bits) & ((1ULL << ((parts() + 1) * kind_.bits)) - 1);
    }

    /* Writes the counts of parts() + 1 parts, the oldest first. */
    void decode(uint64_t counts, uint64_t *part) const {
        unsigned n = parts();

        if (!is_string()) {
            part[0] = oldest(counts);

            for (unsigned i = 1; i <= n; i++) {
                part[i] = counts >> ((n - i) * kind_.bits) & field_mask();
            }

            return;
        }

        for (unsigned i = 0; i <= n; i++) {
            part[i] = 0;
        }

        for (unsigned i = n; counts != 0; counts >>= 1) {
            if ((counts & 1) == 0) {
                part[i]++;
            } else {
                i--;
            }
        }
    }

    /* Returns decode()'s opposite, of counts that fit. */
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
    static unsigned length_of(uint64_t counts) {
        return 64 - static_cast<unsigned>(__builtin_clzll(counts));
    }

    /* Returns a string of no requests. */
    uint64_t none() const { return (2ULL << parts()) - 1; }

    uint64_t field_mask() const { return (1ULL << kind_.bits) - 1; }

    uint64_t older_field(uint64_t count) const {
        return (count + (1ULL << kind_.rounding) - 1) >> kind_.rounding << kind_.bits;
    }

    CounterKind kind_;
};

} // namespace limit_sliding
