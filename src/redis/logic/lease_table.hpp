/* Copyright (C) the limit_sliding authors */

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/atomics.hpp"
#include "core/mix.hpp"
#include "redis/logic/lease_terms.hpp"

namespace limit_sliding {

/* The owner of a lease: the key's hash, and the limit that is asked for. */
struct LeaseOwner {
    uint64_t hash;
    uint32_t limit;
};

constexpr size_t kTerms = sizeof(LeaseTerms) / sizeof(uint64_t);

/*
 * A lease is one cache line.  Its word holds the units and a generation.  A
 * writer first takes all units out of the word and begins a new generation,
 * then writes the terms, and only then puts units in.  A spender changes the
 * word alone, and only if the terms are of its generation.
 *
 * As in refusals.cpp, terms are valid if their check is: terms of mixed origin,
 * or of another generation, are nobody's.  A writer may be slow, and another
 * may have begun a generation since.  So every value has some bits of its
 * generation, and is written by compare-and-swap only while the word is still
 * the writer's: what is newer stays.
 */
class alignas(64) Lease {
public:
    static uint64_t units(uint64_t word) { return word & kUnits; }

    static uint64_t next(uint64_t word) { return (word | kUnits) + 1; }

    uint64_t word() const { return word_.load(std::memory_order_acquire); }

    /*
     * Replaces the word as it was read; false if anybody has changed it since.
     */
    bool exchange(uint64_t from, uint64_t to) {
        return word_.compare_exchange_strong(from, to, std::memory_order_acq_rel);
    }

    /* True if these are the terms of this owner, and of this word. */
    bool read(const LeaseOwner &owner, uint64_t word, LeaseTerms *terms) const {
        return differs(owner.hash, word, terms) == owner.limit;
    }

    /* True if these are terms of the key, whatever limit was asked for. */
    bool read_any(uint64_t hash, uint64_t word, LeaseTerms *terms) const {
        return differs(hash, word, terms) <= UINT32_MAX;
    }

    /* Writes terms, for a caller that has just begun this word; false if
     * another worker has begun one since. */
    bool write(const LeaseOwner &owner, uint64_t word, const LeaseTerms &terms) {
        const uint64_t values[kTerms] = {terms.part,     terms.until_ms, terms.known_ms,
                                         terms.reset_ms, terms.numbers,  terms.past};

        bool is_ours = replace(&check_, word, check(owner.hash, word, values) ^ owner.limit);

        for (size_t i = 0; i < kTerms && is_ours; i++) {
            is_ours = replace(&terms_[i], word, values[i] << kTagBits | tag(word));
        }

        return is_ours;
    }

    uint64_t known_ms() const { return load(2); }

    /* False while terms are being written, or if their writer has died. */
    bool is_whole(uint64_t word) const {
        return (terms_[5].load(std::memory_order_relaxed) & kTag) == tag(word);
    }

    /* True if the lease is worth keeping, whatever its key: it was granted
     * units, and may still be spent. */
    bool is_in_use(uint64_t now_ms) const {
        return units(load(5)) > 0 && now_ms < known_ms() + kLeaseMs;
    }

private:
    static constexpr unsigned kTagBits = 16;
    static constexpr uint64_t kTag = (uint64_t{1} << kTagBits) - 1;

    static uint64_t tag(uint64_t word) { return word >> kUnitBits & kTag; }

    /* Returns how the check differs from that of a limit of 0: the limit, if
     * these are terms of the key. */
    uint64_t differs(uint64_t hash, uint64_t word, LeaseTerms *terms) const {
        uint64_t values[kTerms];

        for (size_t i = 0; i < kTerms; i++) {
            values[i] = load(i);
        }

        *terms = {values[0], values[1], values[2], values[3], values[4], values[5]};

        return check_.load(std::memory_order_relaxed) ^ check(hash, word, values);
    }

    static uint64_t check(uint64_t hash, uint64_t word, const uint64_t *values) {
        uint64_t sum = mixed(hash ^ word >> kUnitBits);

        for (size_t i = 0; i < kTerms; i++) {
            sum = (sum ^ values[i]) * 0xff51afd7ed558ccd;
            sum ^= sum >> 32;
        }

        return sum;
    }

    uint64_t load(size_t i) const { return terms_[i].load(std::memory_order_relaxed) >> kTagBits; }

    /* Replaces a value only if it was read while the word was ours. */
    bool replace(std::atomic<uint64_t> *value, uint64_t word, uint64_t with) {
        uint64_t was = value->load(std::memory_order_acquire);

        for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
            if (this->word() != word) { return false; }

            if (value->compare_exchange_strong(was, with, std::memory_order_acq_rel,
                                               std::memory_order_acquire)) {
                return true;
            }
        }

        return false;
    }

    std::atomic<uint64_t> word_;
    std::atomic<uint64_t> check_;
    std::atomic<uint64_t> terms_[kTerms];
};

static_assert(sizeof(Lease) == 64);

} // namespace limit_sliding
