/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cassert>
#include <cstdint>

namespace limit_sliding {

/* The pairs of lines in a table.  One pair in 32 is spare, used when other lines are full. */
struct Pairs {
    uint64_t hashed;
    uint64_t spare; /* 0 in a table of fewer than 32 pairs */

    /* Divides 1 .. 2^32 - 1 pairs into hashed and spare ones. */
    static constexpr Pairs of(uint64_t all) {
        assert(all != 0 && all <= UINT32_MAX);
        return {all - all / 32, all / 32};
    }

    constexpr uint64_t all() const { return hashed + spare; }
};

/*
 * The candidate lines of a key and its fingerprint, all derived from one 64-bit hash.
 *
 * A line has four slots.  The hash selects three pairs of adjacent lines, and which line of each
 * pair is the first.  The key's order is the first line of each pair, then the second lines.  Two
 * spare pairs follow in the same way.  Two keys are confused if they share a line and 38 bits of
 * their hash.  A lookup of an absent key in a full table reads 40 slots: one or two of 10^10 such
 * lookups find another key.  The tags of keys with their own window have only 33 bits of the hash:
 * 47 of 10^10 lookups find another key.
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

    /* Returns the fingerprint, never 0, because the tag 0 is that of an unused slot. */
    uint64_t fingerprint() const { return fingerprint_; }

    bool has_spare_lines() const { return pairs_.spare != 0; }

    /* Returns the number of the i-th line in the key's order. */
    uint64_t line(unsigned i) const {
        assert(i < kLines + kSpareLines);
        assert(i < kLines || has_spare_lines());
        if (i < kLines) { return line_of(mixed(i % 3), pairs_.hashed, i / 3); }
        i -= kLines;
        return 2 * pairs_.hashed + line_of(mixed(3 + i % 2), pairs_.spare, i / 2);
    }

    /* Returns a number that differs between keys, to break ties between slots of equal rank. */
    uint64_t salt() const { return mixed(1) >> 8; }

private:
    /* Selects a pair by a hash, and one of its lines. */
    static uint64_t line_of(uint64_t hash, uint64_t pairs, unsigned which) {
        uint64_t pair = (hash >> 32) * pairs >> 32;
        return 2 * pair + ((hash >> 31 ^ which) & 1);
    }

    /* Derives five hashes; the multipliers are odd and otherwise arbitrary. */
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
