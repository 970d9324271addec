/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/hashes.hpp"
#include "core/base/page_marks.hpp"
#include "core/policy/claim.hpp"
#include "core/table/key.hpp"
#include "core/table/ring.hpp"
#include "core/table/slot.hpp"

namespace limit_sliding {

constexpr auto kSecretBytes = 16;
constexpr auto kZoneAlign = 128; /* bytes */

/* The numbers of keys by their used share of one limit, in bands of 20%.  The last band has the
 * keys for which not even one more request fits.  Keys with their own window are left out. */
struct KeyShares {
    static constexpr size_t kBands = 6;

    uint64_t keys[kBands];
};

/* The memory of a zone: this head, lines of slots, and the marks of their pages.  Fields that
 * requests read share no cache line with counts that evictions write. */
struct Zone {
    uint64_t secret[2];
    Pairs pairs;
    uint64_t slot_bytes;
    uint64_t offset_ms;            /* ms added to the caller's time */
    Window window;                 /* window of keys without their own */
    alignas(64) SlotCounts counts; /* of claims without their own */
    PageMarks marks;

    /* Makes a zone in zeroed memory, aligned to kZoneAlign.  Returns null if the memory is too
     * small for a head and a pair of lines.  Must not run concurrently on the same memory.  A zone
     * needs no destruction. */
    static Zone *init(void *memory, size_t bytes, const Policy &policy, uint64_t offset_ms,
                      const uint8_t secret[kSecretBytes]);

    /* Returns the policy of keys without their own window, given the policy of any key. */
    Policy shared_policy(const Policy &policy) const {
        Policy shared = policy;
        shared.window_ms = window.ms;
        shared.calendar = window.calendar;
        shared.salt = 0;
        return shared;
    }

    /* Returns the hash of a key, which depends on the zone's secret. */
    uint64_t hash(std::string_view key) const {
        return SipHash13(secret[0], secret[1]).hash(key.data(), key.size());
    }

    /* Returns the capacity in keys. */
    uint64_t slot_count() const { return pairs.all() * 2 * Line::kSlots; }

    /* Returns the number of slots with a live state among `bytes` of slots; exact if these are all
     * slots.  Otherwise the number is an estimate: `used` x live share of the used slots in this
     * part, a random sample because keys are hashed.  A walk over a gigabyte takes a good part of
     * a second.  `shares` gets the keys by their used share of the limit, from a sample of
     * bytes / 64 keys; nullptr: nothing. */
    uint64_t keys(const Policy &policy, uint64_t now_ms, uint64_t limit, uint64_t used,
                  uint64_t bytes, KeyShares *shares = nullptr) const;

    /* Withdraws states that are two epochs old, in one part of `bytes` of the slots; `part` is its
     * number modulo the number of parts.  Returns the number of withdrawn states.  The caller must
     * sweep all parts within 100 days: epochs wrap after a year or more, and no key must meet a
     * state that it had before. */
    uint64_t sweep(const Policy &policy, uint64_t now_ms, uint64_t limit, uint64_t part,
                   uint64_t bytes);

    char *slots() { return reinterpret_cast<char *>(this + 1); }

    /* Remembers that a slot is used, and tells whether any slot of its page is. */
    void mark(const Slot &slot) { marks.mark(slots(), &slot); }
    bool is_used(const Slot &slot) { return marks.is_used(slots(), &slot); }
};

static_assert(sizeof(Zone) == kZoneAlign, "a pair of lines starts at a multiple of 128 bytes");
static_assert(kSecretBytes == 16, "two words of secret");

/* Slots of 16 bytes, for states of one word. */
struct WordSlots {
    Zone *zone;

    explicit WordSlots(Zone *zone_of_slots) : zone(zone_of_slots) {}

    Slot &slot(uint64_t line, unsigned number) const {
        return reinterpret_cast<Line *>(zone->slots())[line].slot[number];
    }
};

/* Slots that are followed by a ring. */
struct RingSlots {
    Zone *zone;
    uint64_t slot_bytes;

    explicit RingSlots(Zone *zone_of_slots)
        : zone(zone_of_slots), slot_bytes(zone_of_slots->slot_bytes) {}

    Slot &slot(uint64_t line, unsigned number) const {
        char *place = zone->slots() + (line * Line::kSlots + number) * slot_bytes;
        return *reinterpret_cast<Slot *>(place);
    }

    unsigned ring_length() const {
        return static_cast<unsigned>((slot_bytes - sizeof(Slot)) / sizeof(Event));
    }
};

inline SlotCounts *counts_of(const Claim &claim) {
    return claim.counts != nullptr ? claim.counts : &claim.zone->counts;
}

} // namespace limit_sliding
