/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

namespace limit_sliding {

/* The pairs of lines of a table, one after the other: one in 32 is set apart for
 * keys whose other lines are full. */
struct Pairs {
    uint64_t hashed;
    uint64_t spare; /* 0 in a table of fewer than 32 */

    /* Divides so many, 1 .. 2^32 - 1. */
    static constexpr Pairs of(uint64_t all) { return {all - all / 32, all / 32}; }

    constexpr uint64_t all() const { return hashed + spare; }
};

/*
 * A key as the table knows it: the places where it may be, and a fingerprint
 * to tell it there, all drawn from one 64-bit hash.
 *
 * Places are lines of four slots.  Three pairs of adjacent lines are hashed;
 * the order is the first line of each pair, then the second, where the hash
 * says which line of a pair is the first.  Two spare pairs follow in the same
 * manner.  Two keys are taken for one if they share a line and 38 bits of their
 * hash: of 10^10 lookups of absent keys in a full table, where each reads 40
 * slots, one or two meet such a twin.  Keys that have a window of their own have 33
 * of these bits in their tags: 47 of 10^10 meet one.
 */
class Key {
public:
    static constexpr unsigned kLines = 6;
    static constexpr unsigned kSpareLines = 4;
    static constexpr unsigned kFingerprintBits = 38;

    Key(uint64_t hash, const Pairs &pairs)
        : fingerprint_(hash & ((1ULL << kFingerprintBits) - 1)), hash_(hash), pairs_(pairs) {
        fingerprint_ += fingerprint_ == 0;
    }

    /* Returns the fingerprint, which is never 0: that is the tag of a slot
     * never used. */
    uint64_t fingerprint() const { return fingerprint_; }

    bool has_spare_lines() const { return pairs_.spare != 0; }

    /* Returns the i-th line in the key's order. */
    uint64_t line(unsigned i) const {
        if (i < kLines) { return line_of(mixed(i % 3), pairs_.hashed, i / 3); }

        i -= kLines;

        return 2 * pairs_.hashed + line_of(mixed(3 + i % 2), pairs_.spare, i / 2);
    }

    /* Returns a number that differs from key to key, to break ties between
     * equal victims. */
    uint64_t salt() const { return mixed(1) >> 8; }

private:
    /* Returns one line of a pair out of so many. */
    static uint64_t line_of(uint64_t hash, uint64_t pairs, unsigned which) {
        uint64_t pair = (hash >> 32) * pairs >> 32;

        return 2 * pair + ((hash >> 31 ^ which) & 1);
    }

    /* Makes five hashes of one; the multipliers are odd and otherwise
     * arbitrary. */
    uint64_t mixed(unsigned which) const {
        switch (which) {
        case 0:
            return hash_;
        case 1:
            return hash_ * 0x9e3779b97f4a7c15;
        case 2:
            return (hash_ ^ hash_ >> 32) * 0xd6e8feb86659fd93;
        case 3:
            return (hash_ ^ hash_ >> 32) * 0xbf58476d1ce4e5b9;
        default:
            return (hash_ ^ hash_ >> 32) * 0x94d049bb133111eb;
        }
    }

    uint64_t fingerprint_;
    uint64_t hash_;
    Pairs pairs_;
};

} // namespace limit_sliding
