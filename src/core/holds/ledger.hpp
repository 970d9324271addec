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
 * Entries are in chunks of 16, and a chunk belongs to one seat, the number of a worker.  Only the
 * owner uses the chunk's header and makes entries:
 *
 *     seat + 1: 16 bits | used entries: 16 bits, one each | next chunk + 1: 32 bits
 *
 * The header of a free chunk is 0.
 *
 * `next` links chunks of the owner that have an unused entry.  Headers and entries follow the
 * ledger in shared memory.
 */
class Ledger {
public:
    static constexpr unsigned kChunk = 16;
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

        /* Returns true if the entry's request counts in its key. */
        bool is_held() const { return status() == kHeld; }

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
    uint64_t capacity() const { return chunks_ * kChunk; }

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

    /* Gives a free chunk to a seat.  Returns its number + 1; 0: all have owners. */
    uint32_t claim_chunk(uint32_t seat);
    void free_chunk(uint32_t chunk) const { header(chunk).store(0); }
    Atomic<uint64_t> &header(uint32_t chunk) const { return headers()[chunk]; }

    /* Returns true if the seat may own chunks. */
    bool is_used(uint32_t seat) const {
        return (seats_[seat / 64].load() & uint64_t{1} << seat % 64) != 0;
    }

    /* Calls release(index) for each used entry of a dead seat, and frees its chunks. */
    template <class Release>
    void recover(uint32_t seat, const Release &release);

    static uint64_t header_of(uint64_t seat, uint64_t used, uint64_t next) {
        return (seat + 1) << 48 | used << 32 | next;
    }
    static uint64_t seat_of(uint64_t header) { return (header >> 48) - 1; }
    static uint64_t used_of(uint64_t header) { return header >> 32 & kAllUsed; }
    static uint32_t next_of(uint64_t header) { return static_cast<uint32_t>(header); }

    static constexpr uint64_t kAllUsed = (1u << kChunk) - 1;

private:
    Entry *entries() const { return reinterpret_cast<Entry *>(const_cast<Ledger *>(this) + 1); }
    Atomic<uint64_t> *headers() const {
        return reinterpret_cast<Atomic<uint64_t> *>(entries() + chunks_ * kChunk);
    }

    alignas(64) uint64_t chunks_;
    Atomic<uint64_t> seats_[kSeats / 64]; /* a bit for each seat that may own chunks */
};

static_assert(sizeof(Ledger::Entry) == 16, "16 bytes for each request in flight");
static_assert(kNarrowMax <= Ledger::Word::kUnitMask, "a cost fits");

template <class Release>
void Ledger::recover(uint32_t seat, const Release &release) {
    if (!is_used(seat)) { return; }

    for (uint32_t chunk = 0; chunk < chunks_; chunk++) {
        const uint64_t seen = header(chunk).load();
        if (seen == 0 || seat_of(seen) != seat) { continue; }

        for (uint64_t used = used_of(seen); used != 0; used &= used - 1) {
            release(chunk * kChunk + static_cast<uint32_t>(__builtin_ctzll(used)));
        }

        free_chunk(chunk);
    }

    seats_[seat / 64].fetch_and(~(uint64_t{1} << seat % 64));
}

} // namespace limit_sliding
