/* Copyright (C) the limit_sliding authors */

#include "redis/shared/refusals.hpp"

#include "core/base/atomics.hpp"
#include "core/base/hashes.hpp"
#include "redis/protocol/ask_hash.hpp"

namespace limit_sliding {

/* Several processes may write an entry at once, without a lock, and may die meanwhile.  The check
 * of an entry is the hash combined with all of its data, so an entry of mixed origin does not
 * have the check of any hash that is looked up.  For this reason, all accesses are relaxed.  A
 * refusal may be in any entry of its line. */

namespace {

constexpr size_t kEntries = 3;

/* The lines of a key, since its requests may have several limits and costs. */
constexpr uint64_t kLines = 4;

/* The bits of a time; the other bits of the two times together are Refusal::reset_ms. */
constexpr unsigned kTimeBits = 42;
constexpr unsigned kOtherBits = 64 - kTimeBits;
constexpr uint64_t kTimeMask = (uint64_t{1} << kTimeBits) - 1;
constexpr uint64_t kOtherMask = (uint64_t{1} << kOtherBits) - 1;

constexpr uint64_t kAdmits = uint64_t{1} << 63;

struct Data {
    uint64_t until;
    uint64_t known_until;
    uint64_t limit; /* plus kAdmits, if the refusal admits */
    uint64_t remaining;

    uint64_t until_ms() const { return until & kTimeMask; }

    uint64_t known_until_ms() const { return known_until & kTimeMask; }

    uint64_t reset_ms() const {
        return known_until >> kTimeBits << kOtherBits | until >> kTimeBits;
    }
};

Data data_of(const Refusal &refusal, uint64_t now_ms) {
    uint64_t known_until_ms = now_ms + refusal.lasts_ms;
    uint64_t until_ms = refusal.admits ? known_until_ms : refusal.until_ms;
    return {(until_ms & kTimeMask) | (refusal.reset_ms & kOtherMask) << kTimeBits,
            (known_until_ms & kTimeMask) | refusal.reset_ms >> kOtherBits << kTimeBits,
            (refusal.admits ? kAdmits : 0) | refusal.limit, refusal.remaining};
}

/* Mixes a word, so that words of several origins do not cancel each other out. */
uint64_t mixed_by(uint64_t word, uint64_t factor) {
    word = (word ^ word >> 32) * factor;
    return word ^ word >> 29;
}

uint64_t check_of(uint64_t hash, const Data &data) {
    return hash ^ mixed_by(data.until, 0x9e3779b97f4a7c15)
           ^ mixed_by(data.known_until, 0xff51afd7ed558ccd)
           ^ mixed_by(data.limit, 0xc4ceb9fe1a85ec53)
           ^ mixed_by(data.remaining, 0xbf58476d1ce4e5b9);
}

} // namespace

struct Refusals::Entry {
    Atomic<uint64_t> check;
    Atomic<uint64_t> until;
    Atomic<uint64_t> known_until;
    Atomic<uint64_t> limit;
    Atomic<uint64_t> remaining;

    Data load() const {
        return {until.load(std::memory_order_relaxed), known_until.load(std::memory_order_relaxed),
                limit.load(std::memory_order_relaxed), remaining.load(std::memory_order_relaxed)};
    }

    bool holds(uint64_t hash, const Data &data) const {
        return check.load(std::memory_order_relaxed) == check_of(hash, data);
    }

    void store(uint64_t hash, const Data &data) {
        check.store(check_of(hash, data), std::memory_order_relaxed);
        until.store(data.until, std::memory_order_relaxed);
        known_until.store(data.known_until, std::memory_order_relaxed);
        limit.store(data.limit, std::memory_order_relaxed);
        remaining.store(data.remaining, std::memory_order_relaxed);
    }
};

/* Two cache lines; a search mostly reads one. */
struct alignas(64) Refusals::Line {
    Entry entry[kEntries];
};

Refusals *Refusals::init(void *memory, size_t bytes) {
    if (bytes < sizeof(Refusals) + sizeof(Line)) { return nullptr; }

    auto *refusals = static_cast<Refusals *>(memory);
    refusals->lines_ = (bytes - sizeof(Refusals)) / sizeof(Line);
    return refusals;
}

uint64_t refusal_hash(const Claim &claim) {
    uint64_t lower = UINT32_MAX;
    return (mixed(claim.hash) & ~lower) | (ask_hash(&claim, 1) & lower);
}

Refusals::Line &Refusals::line_of(uint64_t hash) const {
    /* the upper half, which depends on the key alone, distinguishes enough lines */
    uint64_t number = ((hash >> 32) * lines_ >> 32) + hash % kLines;
    while (number >= lines_) {
        number -= lines_;
    }

    return reinterpret_cast<Line *>(const_cast<Refusals *>(this) + 1)[number];
}

void Refusals::add(uint64_t hash, uint64_t now_ms, const Refusal &refusal) {
    Data data = data_of(refusal, now_ms);
    Entry *choice = nullptr;
    uint64_t earliest = UINT64_MAX;
    for (Entry &entry : line_of(hash).entry) {
        Data other = entry.load();
        if (entry.holds(hash, other)) {
            choice = &entry;
            break;
        }

        /* expired entries are evicted first */
        uint64_t ends = other.known_until_ms() <= now_ms ? 0 : other.until_ms();
        if (ends < earliest) {
            earliest = ends;
            choice = &entry;
        }
    }

    if (choice != nullptr) { choice->store(hash, data); }
}

bool Refusals::find(uint64_t hash, uint64_t now_ms, Refusal *refusal) const {
    for (const Entry &entry : line_of(hash).entry) {
        Data data = entry.load();

        /* most entries have expired, and to compare times is faster than to compare hashes */
        if (now_ms >= data.until_ms() || now_ms >= data.known_until_ms()) { continue; }

        if (!entry.holds(hash, data)) { continue; }

        refusal->until_ms = data.until_ms();
        refusal->limit = data.limit & ~kAdmits;
        refusal->remaining = data.remaining;
        refusal->reset_ms = data.reset_ms();
        refusal->admits = (data.limit & kAdmits) != 0;
        return true;
    }

    return false;
}

void Refusals::forget(const Claim &claim) {
    uint64_t hash = refusal_hash(claim);
    for (uint64_t i = 0; i < kLines; i++) {
        for (Entry &entry : line_of(hash - hash % kLines + i).entry) {
            entry.check.store(0, std::memory_order_relaxed);
        }
    }
}

} // namespace limit_sliding
