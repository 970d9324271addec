/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_CORE_LEASE_HPP
#define LIMIT_SLIDING_CORE_LEASE_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lease.h"
#include "mix.hpp"

namespace limit_sliding {

struct Terms {
    uint64_t part;     /* of the window, in which the units count */
    uint64_t until_ms; /* it ends */
    uint64_t known_ms; /* when Redis was asked */
    uint64_t reset_ms; /* of a verdict, as a time */
    uint64_t numbers;  /* the limit in force, and what Redis had left */
    uint64_t granted;  /* units that were in the lease then */
};

constexpr unsigned kUnitBits = 23;
constexpr uint64_t kUnits = (uint64_t{1} << kUnitBits) - 1;

constexpr size_t kTerms = sizeof(Terms) / sizeof(uint64_t);

/*
 * A lease is one cache line.  Its word holds the units and a generation.  Who
 * writes a lease first takes all units out of the word and begins a new
 * generation, then writes the terms, and only then puts units in; whoever
 * spends changes the word alone, from the generation of which the terms are.
 * As in refusals.cpp, terms are valid if their check is: terms of mixed origin,
 * or of another generation, are nobody's, and their units are lost.
 */
class alignas(64) Lease {
public:
    static uint64_t units(uint64_t word) { return word & kUnits; }

    uint64_t word() const { return word_.load(std::memory_order_acquire); }

    /* From the word as it was read: 1 if nobody has changed it since. */
    bool exchange(uint64_t from, uint64_t to)
    {
        return word_.compare_exchange_strong(from, to,
                                             std::memory_order_acq_rel);
    }

    /* 1 if these are the terms of this key, and of this word. */
    bool read(uint64_t hash, uint64_t word, Terms *terms) const
    {
        uint64_t values[kTerms];

        for (size_t i = 0; i < kTerms; i++) {
            values[i] = terms_[i].load(std::memory_order_relaxed);
        }

        *terms = {values[0], values[1], values[2],
                  values[3], values[4], values[5]};

        return check_.load(std::memory_order_relaxed)
               == check(hash, word, values);
    }

    void write(uint64_t hash, uint64_t word, const Terms &terms)
    {
        const uint64_t values[kTerms]
            = {terms.part,     terms.until_ms, terms.known_ms,
               terms.reset_ms, terms.numbers,  terms.granted};

        check_.store(check(hash, word, values), std::memory_order_relaxed);

        for (size_t i = 0; i < kTerms; i++) {
            terms_[i].store(values[i], std::memory_order_relaxed);
        }
    }

    uint64_t known_ms() const
    {
        return terms_[2].load(std::memory_order_relaxed);
    }

    /* Of whatever key; one that was granted nothing is not worth to be kept. */
    bool is_in_use(uint64_t now_ms) const
    {
        return terms_[5].load(std::memory_order_relaxed) > 0
               && now_ms < known_ms() + LIMIT_SLIDING_LEASE_MS;
    }

    static uint64_t next(uint64_t word) { return (word | kUnits) + 1; }

private:
    static uint64_t check(uint64_t hash, uint64_t word, const uint64_t *values)
    {
        uint64_t sum = mixed(hash ^ word >> kUnitBits);

        for (size_t i = 0; i < kTerms; i++) {
            sum = (sum ^ values[i]) * 0xff51afd7ed558ccd;
            sum ^= sum >> 32;
        }

        return sum;
    }

    std::atomic<uint64_t> word_;
    std::atomic<uint64_t> check_;
    std::atomic<uint64_t> terms_[kTerms];
};

static_assert(sizeof(Lease) == 64);

} // namespace limit_sliding

#endif
