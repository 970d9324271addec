/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/atomics.hpp"
#include "core/policy/policy.hpp"

namespace limit_sliding {

/*
 * The ledger of a zone with inflight=: an entry of 16 bytes for each request in flight, so that
 * the units of a worker that dies can be given back.
 *
 *     hash   Zone::hash() of the key
 *     word   status 2 | start 24 | units 22 | number 16
 *
 * The status of an entry goes from free to taking, held, returning, and free again.  A rejected
 * claim goes from taking back to free.
 *
 * A change of a key's count is one compare-and-swap of the state.  The worker first sets the entry
 * to taking or returning, and after the swap to held or free.  The new state has the mark of the
 * change: the index of the entry, and its number, which each change advances.  A process that
 * replaces a state first calls confirm(), which moves the entry of the old mark to held or free.
 * So if a process reads the state, then the entry, and finds another mark and the status taking or
 * returning, then the change was not made.  That holds at any moment, also after the worker of the
 * entry has died (hold.hpp).
 *
 * At last the worker removes the mark, unless another one has replaced the state.  So a state at
 * rest has no mark, and a mark names the last change of its entry, although numbers wrap after
 * 65,536 changes.  Only a process that stalls between two accesses for so many changes of an entry
 * could mistake a change for a later one.
 *
 * Each entry belongs to one seat, the number of a worker, or to none.  Only the owner makes and
 * uses entries.  The owners of the four entries in a cache line are in one word, with 16 bits each:
 * the seat + 1, or 0.  A worker claims all free entries of a line at once, so that few lines are
 * shared.  It frees each unused entry alone, because another one of the line may be used for days.
 *
 * The owner links its unused entries by `hash`: index + 1 of the next one, or 0.  Lines and words
 * of owners follow the ledger in shared memory.
 */
class Ledger {
public:
    static constexpr unsigned kLine = 4; /* entries of a cache line */
    static constexpr unsigned kSeats = 1024;
    static constexpr size_t kBytesMin = 1024;

    enum Status : uint64_t { kFree = 0, kTaking, kHeld, kReturning };

    struct Entry {
        Atomic<uint64_t> hash;
        Atomic<uint64_t> word;
    };

    /* A word of an entry. */
    struct Word {
        static constexpr unsigned kNumberBits = 16;
        static constexpr unsigned kUnitBits = 22;
        static constexpr unsigned kStartBits = 24;
        static constexpr unsigned kStartShift = kNumberBits + kUnitBits;
        static constexpr unsigned kStatusShift = kStartShift + kStartBits;
        static constexpr uint64_t kNumberMask = (1u << kNumberBits) - 1;
        static constexpr uint64_t kUnitMask = (1u << kUnitBits) - 1;
        static constexpr uint64_t kStartMask = (1u << kStartBits) - 1;

        uint64_t bits;

        static Word taking(Word before, uint64_t units, uint64_t now_ms) {
            return Word{((now_ms / 1000 & kStartMask) << kUnitBits | units) << kNumberBits
                        | ((before.bits + 1) & kNumberMask)}
                .with(kTaking);
        }

        Status status() const { return static_cast<Status>(bits >> kStatusShift); }
        bool is_changing() const { return status() == kTaking || status() == kReturning; }
        uint64_t units() const { return bits >> kNumberBits & kUnitMask; }
        uint64_t number() const { return bits & kNumberMask; }

        /* Returns the age in s, modulo 194 days.  The clock of another worker may be behind. */
        uint64_t age_s(uint64_t now_ms) const {
            const uint64_t age = (now_ms / 1000 - (bits >> kStartShift)) & kStartMask;
            return age <= kStartMask - kBehindS ? age : 0;
        }

        Word with(Status status) const {
            constexpr uint64_t kMask = (uint64_t{1} << kStatusShift) - 1;
            return {(bits & kMask) | status << kStatusShift};
        }

        /* Returns the word after a change that was made. */
        Word confirmed() const { return status() == kTaking ? with(kHeld) : with(kFree); }

        Word returning() const {
            return Word{(bits & ~kNumberMask) | ((bits + 1) & kNumberMask)}.with(kReturning);
        }

    private:
        static constexpr uint64_t kBehindS = 60;
    };

    /* Makes a ledger in zeroed memory of at least kBytesMin bytes, aligned to 64. */
    static Ledger *init(void *memory, size_t bytes);

    /* Returns the number of requests in flight that fit. */
    uint64_t capacity() const { return lines_ * kLine; }

    Entry &entry(uint32_t index) const { return entries()[index]; }

    /* Returns the mark of an entry's last change, never 0. */
    static uint64_t mark_of(uint32_t index, Word word) {
        return (uint64_t{index} + 1) << Word::kNumberBits | word.number();
    }

    /* Moves an entry to the status after a change, given the mark of the change in a state. */
    void confirm(uint64_t mark) const;

    /* Sums of the entries that are held: of one key, or of all keys if `hash` is null. */
    struct Sums {
        uint64_t requests;
        uint64_t units;
        uint64_t longest_s; /* age of the oldest request in s */
    };

    Sums sums(const uint64_t *hash, uint64_t now_ms) const;

    /* Gives the free entries of a line to a seat: of the first line from *line on that has any.
     * Returns a bit for each entry, and its line; 0: no line has any. */
    unsigned claim(uint32_t seat, uint32_t *line);

    /* Takes an entry from its owner. */
    void free_entry(uint32_t index) const {
        owners(index / kLine).fetch_and(~(kOwnerMask << shift_of(index % kLine)));
    }

    /* Returns true if the seat may own entries. */
    bool is_used(uint32_t seat) const {
        return (seats_[seat / 64].load() & uint64_t{1} << seat % 64) != 0;
    }

    /* Calls release(index) for each entry of a dead seat, and frees the entry. */
    template <class Release>
    void recover(uint32_t seat, const Release &release);

private:
    static constexpr unsigned kOwnerBits = 16;
    static constexpr uint64_t kOwnerMask = (uint64_t{1} << kOwnerBits) - 1;

    static unsigned shift_of(unsigned place) { return place * kOwnerBits; }

    /* Returns the seat + 1 that owns an entry of a line, given the owners of the line. */
    static uint64_t owner_of(uint64_t owners, unsigned place) {
        return owners >> shift_of(place) & kOwnerMask;
    }

    Entry *entries() const { return reinterpret_cast<Entry *>(const_cast<Ledger *>(this) + 1); }
    Atomic<uint64_t> &owners(uint32_t line) const {
        return reinterpret_cast<Atomic<uint64_t> *>(entries() + lines_ * kLine)[line];
    }

    alignas(64) uint64_t lines_;
    Atomic<uint64_t> seats_[kSeats / 64]; /* a bit for each seat that may own entries */
};

static_assert(sizeof(Ledger::Entry) * Ledger::kLine == 64, "a line is a cache line");
static_assert(kNarrowMax <= Ledger::Word::kUnitMask, "a cost fits");

template <class Release>
void Ledger::recover(uint32_t seat, const Release &release) {
    if (!is_used(seat)) { return; }

    for (uint32_t line = 0; line < lines_; line++) {
        const uint64_t seen = owners(line).load();
        if (seen == 0) { continue; }

        for (unsigned i = 0; i < kLine; i++) {
            if (owner_of(seen, i) != seat + 1) { continue; }

            release(line * kLine + i);
            free_entry(line * kLine + i);
        }
    }

    seats_[seat / 64].fetch_and(~(uint64_t{1} << seat % 64));
}

} // namespace limit_sliding
