/* Copyright (C) the limit_sliding authors */

/* One lease: the terms on which units were leased, and the words of shared
 * memory that hold them. */

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/atomics.hpp"
#include "core/claim.hpp"
#include "core/mix.hpp"

namespace limit_sliding {

/* The time after Redis was asked in which its units are spent.  One request
 * then asks whether the key still has the same limit. */
constexpr auto kLeaseMs = 1000;

constexpr unsigned kUnitBits = 23;
constexpr uint64_t kUnits = (uint64_t{1} << kUnitBits) - 1;

constexpr unsigned kLimitBits = 23;

/* The error that the difference of two readings of NGINX's clock may have.  It
 * is the kernel's coarse clock: a reading is late by up to a tick, of at most
 * 10 ms, and rounded; and clocks drift. */
constexpr uint64_t kMarginMs = 12;

/* The epochs of a bucket's leases, as in the script. */
constexpr uint64_t kEpochsPerWindow = 16;
constexpr uint64_t kEpochMs = 1000;

constexpr uint64_t kHorizonMs = 250;
constexpr uint64_t kHorizonsPerPart = 128;
constexpr uint64_t kShareOfRest = 32;
constexpr uint64_t kLoneHorizons = 2;

/* The time since Redis was asked about a key that is seen for the first time;
 * there is no room for more. */
constexpr uint64_t kAgesMs = (uint64_t{1} << 25) - 1;

/* Returns the parts of a counter's window; other algorithms have one. */
inline uint64_t parts_of(const Policy &policy) {
    return policy.algorithm == Algorithm::kCounter ? std::max(policy.precision, 1u) : 1;
}

inline bool is_bucket(const Policy &policy) { return policy.algorithm == Algorithm::kTokenBucket; }

/* The terms on which units are leased, and how many were leased before.  Each
 * word has 48 bits. */
struct LeaseTerms {
    uint64_t part;     /* of the window, in which the units count */
    uint64_t until_ms; /* it ends */
    uint64_t known_ms; /* when Redis was asked */
    uint64_t reset_ms; /* of a verdict, as a time */
    uint64_t numbers;  /* the limit in force, and what Redis had left */
    uint64_t past;     /* units that were in the lease when Redis was asked, and
                          how long before that it was asked the last time */

    uint64_t limit() const { return numbers >> kLimitBits; }

    uint64_t remaining() const { return numbers & ((uint64_t{1} << kLimitBits) - 1); }

    uint64_t granted() const { return past & kUnits; }

    uint64_t before_ms() const { return past >> kUnitBits; }

    /* True while units may be spent without asking Redis. */
    bool is_known(uint64_t now_ms) const {
        return now_ms < known_ms + kLeaseMs && now_ms < until_ms;
    }

    /* True if units of these terms count as those of the others. */
    bool is_same(const LeaseTerms &other) const {
        return part == other.part && limit() == other.limit();
    }

    /* Returns the part and the limit as a number, by which a claim's units are
     * given back. */
    uint64_t origin() const { return part * (kNarrowMax + 1) + limit(); }

    /* Sets when units that Redis granted are to be spent: in the part of the
     * window in which they count, or, of a bucket, in the epoch in which they
     * were granted and the next one; so long they do not run off there. */
    void set_part(const Policy &policy, uint64_t now_ms, uint64_t sent_ms) {
        uint64_t rest_ms;

        if (is_bucket(policy)) {
            uint64_t epoch_ms = std::min(policy.window_ms / kEpochsPerWindow, kEpochMs);

            part = now_ms / epoch_ms;
            rest_ms = 2 * epoch_ms - now_ms % epoch_ms;

        } else {
            uint64_t position = now_ms * parts_of(policy) % policy.window_ms;

            part = now_ms * parts_of(policy) / policy.window_ms;
            rest_ms = (policy.window_ms - position) / parts_of(policy);
        }

        until_ms = sent_ms + rest_ms - std::min(rest_ms, kMarginMs);
    }

    /* Returns how long the present part lasts; parts follow one another. */
    uint64_t rest_ms(uint64_t part_ms, uint64_t now_ms) const {
        return now_ms < until_ms ? until_ms - now_ms : part_ms - (now_ms - until_ms) % part_ms;
    }

    /* Returns true if three requests came close together.  Two requests for a
     * rare key may do so by chance, and units leased for it would lapse. */
    bool is_frequent(uint64_t elapsed_ms, uint64_t horizon_ms) const {
        uint64_t each_ms = kLoneHorizons * horizon_ms;

        return elapsed_ms <= each_ms && elapsed_ms + before_ms() <= 2 * each_ms;
    }

    /* Returns the units that Leases::want() asks for by demand, if so many are
     * left. */
    uint64_t demand(const Claim &claim, uint64_t left, uint64_t needed, uint64_t now_ms) const {
        const Policy &policy = *claim.policy;
        uint64_t part_ms = policy.window_ms / parts_of(policy);
        uint64_t elapsed_ms = now_ms > known_ms ? now_ms - known_ms : 1;
        uint64_t horizon_ms = std::min(kHorizonMs, part_ms / kHorizonsPerPart);
        uint64_t used = granted() - std::min(left, granted()) + needed;
        uint64_t most = remaining() / kShareOfRest;

        if (!is_bucket(policy) && horizon_ms > 0) {
            horizon_ms = std::min(horizon_ms, rest_ms(part_ms, now_ms));
        }

        if (used <= claim.cost) {
            return is_frequent(elapsed_ms, horizon_ms) ? std::min(used, most) : 0;
        }

        return std::min({used * horizon_ms / elapsed_ms, 2 * used, most});
    }
};

/* The owner of a lease: the key's hash, and the limit that is asked for. */
struct LeaseOwner {
    uint64_t hash;
    uint64_t limit;
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
        return differs(hash, word, terms) <= kNarrowMax;
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
