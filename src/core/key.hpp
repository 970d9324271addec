/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

namespace limit_sliding {

/*
 * A key as the table knows it: the places where it may be, and a fingerprint
 * to tell it there, all drawn from one 64-bit hash.
 *
 * Places are lines of four slots.  Three pairs of adjacent lines are hashed;
 * the order is the first line of each pair, then the second, where the hash
 * says which line of a pair is the first.  Two keys are taken for one if they
 * share a line and 38 bits of their hash: of 10^11 lookups of absent keys in a
 * full table about 9 meet such a twin.
 */
class Key {
public:
    static constexpr unsigned kLines = 6;
    static constexpr unsigned kFingerprintBits = 38;

    /* `pairs` of lines are in the table, 1 .. 2^32 - 1. */
    Key(uint64_t hash, uint64_t pairs)
        : fingerprint_(hash & ((1ULL << kFingerprintBits) - 1)), hash_(hash), pairs_(pairs) {
        fingerprint_ += fingerprint_ == 0;
    }

    /* Returns the fingerprint, which is never 0: that is the tag of a slot
     * never used. */
    uint64_t fingerprint() const { return fingerprint_; }

    /* Returns the i-th line in the key's order. */
    uint64_t line(unsigned i) const {
        uint64_t h = mixed(i % 3);
        uint64_t pair = (h >> 32) * pairs_ >> 32;

        return 2 * pair + ((h >> 31 ^ i / 3) & 1);
    }

    /* Returns a number that differs from key to key, to break ties between
     * equal victims. */
    uint64_t salt() const { return mixed(1) >> 8; }

private:
    /* Makes three hashes of one; the multipliers are odd and otherwise
     * arbitrary. */
    uint64_t mixed(unsigned which) const {
        switch (which) {
        case 0:
            return hash_;
        case 1:
            return hash_ * 0x9e3779b97f4a7c15;
        default:
            return (hash_ ^ hash_ >> 32) * 0xd6e8feb86659fd93;
        }
    }

    uint64_t fingerprint_;
    uint64_t hash_;
    uint64_t pairs_;
};

} // namespace limit_sliding
