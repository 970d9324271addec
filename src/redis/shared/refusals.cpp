/* Copyright (C) the limit_sliding authors */

#include "redis/shared/refusals.hpp"

#include <algorithm>
#include <iterator>

#include "core/base/atomics.hpp"

namespace limit_sliding {

namespace {

/* The lines of a key, since its requests may have several limits and costs. */
constexpr uint64_t kLines = 4;

constexpr unsigned kTimeBits = 42;

uint64_t time_of(uint64_t word) { return word & ((uint64_t{1} << kTimeBits) - 1); }

} // namespace

/*
 * A refusal in shared memory:
 *
 *     lower 22 bits of reset_ms | known_until_ms 42
 *     upper 20 bits of reset_ms | until_ms 42
 *     limit
 *     remaining
 *
 * Several processes may write an entry at once, without a lock, and may die meanwhile.  An entry of
 * mixed origin does not have the check of any hash that is looked up, so all accesses are relaxed.
 */
struct Refusals::Entry {
    uint64_t check; /* check_of() the hash and the words */
    uint64_t words[4];

    uint64_t known_until_ms() const { return time_of(load(&words[0])); }

    /* Reads the refusal.  Returns false if it is not of this hash. */
    bool read(uint64_t hash, Refusal *refusal) const {
        const uint64_t seen[]
            = {load(&words[0]), load(&words[1]), load(&words[2]), load(&words[3])};
        const uint64_t reset_ms = seen[1] >> kTimeBits << (64 - kTimeBits) | seen[0] >> kTimeBits;

        *refusal = {time_of(seen[1]), time_of(seen[0]), seen[2], seen[3], reset_ms};
        return load(&check) == check_of(hash, seen);
    }

    void write(uint64_t hash, const Refusal &refusal) {
        const uint64_t upper = refusal.reset_ms >> (64 - kTimeBits);
        const uint64_t known_until_ms
            = std::min(refusal.known_until_ms, refusal.admits() ? UINT64_MAX : refusal.until_ms);
        const uint64_t next[]
            = {refusal.reset_ms << kTimeBits | time_of(known_until_ms),
               upper << kTimeBits | time_of(refusal.until_ms), refusal.limit, refusal.remaining};

        store(&check, check_of(hash, next));
        for (size_t i = 0; i < std::size(next); i++) {
            store(&words[i], next[i]);
        }
    }
};

/* Two cache lines; a search mostly reads one.  A refusal may be in any entry of its line. */
struct alignas(64) Refusals::Line {
    Entry entries[3];
};

struct Refusals::Group {
    Line lines[kLines];
};

Refusals *Refusals::init(void *memory, size_t bytes) {
    if (bytes < sizeof(Refusals) + sizeof(Group)) { return nullptr; }

    auto *refusals = static_cast<Refusals *>(memory);
    refusals->groups_ = (bytes - sizeof(Refusals)) / sizeof(Group);
    return refusals;
}

/* The upper half of the hash depends on the key alone. */
Refusals::Group &Refusals::group_of(uint64_t hash) const {
    uint64_t number = (hash >> 32) * groups_ >> 32;
    return reinterpret_cast<Group *>(const_cast<Refusals *>(this) + 1)[number];
}

Refusals::Line &Refusals::line_of(uint64_t hash) const {
    return group_of(hash).lines[hash % kLines];
}

void Refusals::add(uint64_t hash, uint64_t now_ms, const Refusal &refusal) {
    Entry *choice = nullptr;
    uint64_t earliest = UINT64_MAX;
    for (Entry &entry : line_of(hash).entries) {
        Refusal other;
        if (entry.read(hash, &other)) {
            choice = &entry;
            break;
        }

        /* expired entries are evicted first */
        const uint64_t until_ms = other.admits() ? other.known_until_ms : other.until_ms;
        const uint64_t ends_ms = other.known_until_ms <= now_ms ? 0 : until_ms;
        if (ends_ms < earliest) {
            earliest = ends_ms;
            choice = &entry;
        }
    }

    choice->write(hash, refusal);
}

bool Refusals::find(uint64_t hash, uint64_t now_ms, Refusal *refusal) const {
    for (const Entry &entry : line_of(hash).entries) {
        /* most entries have expired, and to compare times is faster than to compare hashes */
        if (now_ms < entry.known_until_ms() && entry.read(hash, refusal)
            && now_ms < refusal->known_until_ms) {
            return true;
        }
    }

    return false;
}

void Refusals::forget(const Claim &claim) {
    for (Line &line : group_of(refusal_hash(claim)).lines) {
        for (Entry &entry : line.entries) {
            store(&entry.check, 0);
        }
    }
}

} // namespace limit_sliding
