/* Copyright (C) the limit_sliding authors */

/* A lease: the terms on which units were leased, and the words of shared memory with both. */

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "core/base/atomics.hpp"
#include "core/base/hashes.hpp"
#include "core/policy/claim.hpp"
#include "redis/protocol/remote_state.hpp"

namespace limit_sliding {

/* The time in ms after a call in which leased units may be spent.  Then a request asks Redis
 * whether the key still has the same limit. */
constexpr auto kLeaseMs = 1000;

constexpr unsigned kUnitBits = 23;
constexpr uint64_t kUnits = (uint64_t{1} << kUnitBits) - 1;

/* The largest error in ms of the difference of two readings of NGINX's clock.  It is the kernel's
 * coarse clock: a reading is late by a tick of 10 ms at most, and rounded; and clocks drift. */
constexpr uint64_t kMarginMs = 12;

/* Units of a bucket are leased in epochs, as in the script: their number in a window, and the
 * longest epoch in ms. */
constexpr uint64_t kEpochsPerWindow = 16;
constexpr uint64_t kEpochMs = 1000;

/* The sizes of leases, see Leases::want(): the longest horizon in ms, the horizons in a part of the
 * window, and the part of the units left in Redis that a lease may have. */
constexpr uint64_t kHorizonMs = 250;
constexpr uint64_t kHorizonsPerPart = 128;
constexpr uint64_t kShareOfRest = 32;

/* A single request must follow the one before within this many horizons, see is_frequent(). */
constexpr uint64_t kLoneHorizons = 2;

/* The cap of LeaseTerms::before_ms in ms, and its value if the key had no lease.  A key with such a
 * pause is_frequent() in no case. */
constexpr uint64_t kAgesMs = (uint64_t{1} << 11) - 1;

static_assert(kAgesMs > 2 * kLoneHorizons * kHorizonMs);

/* Returns the parts of a window: for a counter those of most keys with this limit, else 1. */
inline uint64_t parts_of(const Policy &policy, uint64_t limit) {
    return policy.algorithm == Algorithm::kCounter ? counter_parts_of(policy, limit) : 1;
}

/* The words of packed terms. */
using TermWords = uint64_t[6];

/* The terms of a lease.  Times are in ms of the node's clock, except for ends_ms. */
struct LeaseTerms {
    uint64_t known_ms;  /* time at which Redis was asked */
    uint64_t until_ms;  /* time until which units may be spent */
    uint64_t ends_ms;   /* end of the units by the clock of Redis, modulo 2^42 */
    uint64_t reset_ms;  /* time at which `remaining` grows */
    uint64_t limit;     /* limit in force */
    uint64_t remaining; /* units left in Redis */
    uint64_t granted;   /* units in the lease after the call */
    uint64_t before_ms; /* ms from the call before to known_ms */

    /* Returns true while units may be spent without asking Redis. */
    bool is_known(uint64_t now_ms) const {
        return now_ms < known_ms + kLeaseMs && now_ms < until_ms;
    }

    /* Returns true if units of both terms count in the same window under the same limit. */
    bool is_same(const LeaseTerms &other) const {
        return ends_ms == other.ends_ms && limit == other.limit;
    }

    /* Returns a hash of the end and the limit, by which units are refunded to the same terms. */
    uint64_t origin() const { return mixed(mixed(limit) + ends_ms); }

    /* Sets the end of units that Redis has granted: the end of the part of the window in which
     * they count; of a bucket, the end of the epoch after their grant, since leased units do not
     * run off until then. */
    void set_end(const Policy &policy, const RemoteState &remote, uint64_t sent_ms) {
        uint64_t epoch_ms = std::min(policy.window_ms / kEpochsPerWindow, kEpochMs);
        uint64_t end_ms = policy.is_bucket() ? (remote.now_ms / epoch_ms + 2) * epoch_ms
                                             : remote.part_ends_ms(policy);
        uint64_t rest_ms = end_ms - std::min(end_ms, remote.now_ms);

        ends_ms = end_ms & mask(42);
        until_ms = sent_ms + rest_ms - std::min(rest_ms, kMarginMs);
    }

    /* Returns the ms until the present part ends; parts of part_ms follow until_ms. */
    uint64_t rest_ms(uint64_t part_ms, uint64_t now_ms) const {
        return now_ms < until_ms ? until_ms - now_ms : part_ms - (now_ms - until_ms) % part_ms;
    }

    /* Returns true if three requests came close together.  Two requests for a rare key may do so
     * by chance, and units leased for the key would expire unspent. */
    bool is_frequent(uint64_t elapsed_ms, uint64_t horizon_ms) const {
        uint64_t each_ms = kLoneHorizons * horizon_ms;
        return elapsed_ms <= each_ms && elapsed_ms + before_ms <= 2 * each_ms;
    }

    /* Returns the units to lease by demand, see Leases::want(), if `left` units are left. */
    uint64_t demand(const Claim &claim, uint64_t left, uint64_t needed, uint64_t now_ms) const {
        const Policy &policy = *claim.policy;
        uint64_t part_ms = policy.window_ms / parts_of(policy, limit);
        uint64_t elapsed_ms = now_ms > known_ms ? now_ms - known_ms : 1;
        uint64_t horizon_ms = std::min(kHorizonMs, part_ms / kHorizonsPerPart);
        uint64_t used = granted - std::min(left, granted) + needed;
        uint64_t most = remaining / kShareOfRest;

        if (!policy.is_bucket() && horizon_ms > 0) {
            horizon_ms = std::min(horizon_ms, rest_ms(part_ms, now_ms));
        }

        if (used <= claim.cost) {
            return is_frequent(elapsed_ms, horizon_ms) ? std::min(used, most) : 0;
        }

        return std::min({used * horizon_ms / elapsed_ms, 2 * used, most});
    }

    /*
     * Packs the terms into words of 48 bits.  A known_ms of more than 42 bits makes the terms
     * invalid, because the check of the stored words is wrong then.
     *
     *     known 42, upper 3 of limit and of remaining
     *     until - known 32, ends 16
     *     upper 26 of ends, reset - known 22
     *     limit 48
     *     remaining 48
     *     before 11, upper 14 of reset - known, granted 23
     */
    void pack(TermWords &words) const {
        uint64_t reset = after_known(reset_ms, 36);

        words[0] = known_ms << 6 | limit >> 48 << 3 | remaining >> 48;
        words[1] = after_known(until_ms, 32) << 16 | (ends_ms & mask(16));
        words[2] = ends_ms >> 16 << 22 | (reset & mask(22));
        words[3] = limit & mask(48);
        words[4] = remaining & mask(48);
        words[5] = before_ms << 37 | reset >> 22 << 23 | granted;
    }

    static LeaseTerms unpack(const TermWords &words) {
        uint64_t known_ms = words[0] >> 6;
        uint64_t reset = (words[5] >> 23 & mask(14)) << 22 | (words[2] & mask(22));
        return {known_ms,
                known_ms + (words[1] >> 16),
                words[2] >> 22 << 16 | (words[1] & mask(16)),
                known_ms + reset,
                (words[0] >> 3 & mask(3)) << 48 | words[3],
                (words[0] & mask(3)) << 48 | words[4],
                words[5] & kUnits,
                words[5] >> 37};
    }

private:
    static constexpr uint64_t mask(unsigned bits) { return (uint64_t{1} << bits) - 1; }

    static_assert(kRemoteMax >> 51 == 0, "limits fit");

    /* Returns a time as ms after known_ms, or the largest number of `bits` bits. */
    uint64_t after_known(uint64_t time_ms, unsigned bits) const {
        return std::min(time_ms - std::min(time_ms, known_ms), mask(bits));
    }
};

/* The owner of a lease: the hash of the key, and the requested limit. */
struct LeaseOwner {
    uint64_t hash;
    uint64_t limit;
};

/*
 * A lease in one cache line.  Its word holds the units and a generation.  A writer takes all
 * units out of the word and begins a new generation, then writes the terms, and then puts units
 * in.  A spender changes only the word, and only if the terms are of its generation.
 *
 * The check covers the terms, the key and the generation, so terms of mixed origin, or of another
 * generation, belong to no key.  While a slow writer writes, another worker may begin a later
 * generation.  So each value has some bits of its generation, and is written by compare-and-swap
 * only while the word is still the writer's: newer values stay.
 */
class alignas(64) Lease {
public:
    static uint64_t units(uint64_t word) { return word & kUnits; }

    static uint64_t next(uint64_t word) { return (word | kUnits) + 1; }

    /* Returns the word.  Terms that are read after it are of its generation or a later one. */
    uint64_t word() const { return word_.load(std::memory_order_acquire); }

    /* Replaces the word if it is still `from`.  Readers of the new word see the terms that were
     * written before.  Acquires nothing, because word() has done so. */
    bool exchange(uint64_t from, uint64_t to) {
        return word_.compare_exchange_strong(from, to, std::memory_order_release,
                                             std::memory_order_relaxed);
    }

    /* Reads the terms.  Returns the requested limit of their owner if they belong to this key and
     * word; else a random number, which is at most kRemoteMax in one of 18,000 cases. */
    uint64_t read(uint64_t hash, uint64_t word, LeaseTerms *terms) const {
        TermWords values;

        for (size_t i = 0; i < std::size(values); i++) {
            values[i] = load(i);
        }

        *terms = LeaseTerms::unpack(values);
        return check_.load(std::memory_order_relaxed) ^ check(hash, word, values);
    }

    /* Writes the terms of a word that the caller has just begun.  Returns false if another worker
     * has begun a later word. */
    bool write(const LeaseOwner &owner, uint64_t word, const LeaseTerms &terms) {
        TermWords values;

        terms.pack(values);

        bool is_ours = replace(&check_, word, check(owner.hash, word, values) ^ owner.limit);

        for (size_t i = 0; i < std::size(values) && is_ours; i++) {
            is_ours = replace(&terms_[i], word, values[i] << kTagBits | tag(word));
        }

        return is_ours;
    }

    uint64_t known_ms() const { return load(0) >> 6; }

    /* Returns false while terms are being written, or if their writer has died. */
    bool is_whole(uint64_t word) const {
        return (terms_[5].load(std::memory_order_relaxed) & kTag) == tag(word);
    }

    /* Returns true if the lease, of whatever key, was granted units that may still be spent. */
    bool is_in_use(uint64_t now_ms) const {
        return units(load(5)) > 0 && now_ms < known_ms() + kLeaseMs;
    }

private:
    static constexpr unsigned kTagBits = 16;
    static constexpr uint64_t kTag = (uint64_t{1} << kTagBits) - 1;

    static uint64_t tag(uint64_t word) { return word >> kUnitBits & kTag; }

    static uint64_t check(uint64_t hash, uint64_t word, const TermWords &values) {
        return check_of(mixed(hash ^ word >> kUnitBits), values);
    }

    /* Terms are relaxed, because the check tells whether they belong to the word. */
    uint64_t load(size_t i) const { return terms_[i].load(std::memory_order_relaxed) >> kTagBits; }

    /* Replaces a value only if it was read while the word was the caller's.  Acquires the
     * generation of the last writer of the value, so that no older word is read, and releases the
     * caller's generation to the next writer. */
    bool replace(Atomic<uint64_t> *value, uint64_t word, uint64_t with) {
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

    Atomic<uint64_t> word_;
    Atomic<uint64_t> check_;
    Atomic<uint64_t> terms_[std::size(TermWords{})];
};

static_assert(sizeof(Lease) == 64);

} // namespace limit_sliding
