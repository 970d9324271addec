/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cassert>
#include <cstdint>

#include "core/base/atomics.hpp"
#include "core/policy/tag_epoch.hpp"
#include "core/table/key.hpp"

namespace limit_sliding {

/*
 * A slot: 16 bytes in two words, for one key.
 *
 *     tag    fingerprint of the key 38 | 0 | epoch 23 | generation 2;  0: unused
 *     state  generation 2 | the algorithm's state 62
 *
 * Each claim of a slot advances the generation of its tag.  So a claim is one compare-and-swap of
 * the tag, which also invalidates the state:
 *
 *     same generation   confirmed: the key's state; kDead if the copy was
 *                       withdrawn
 *     one behind        tentative: claimed, no state yet
 *     anything else     the tag was read before it changed
 *
 * Generations wrap after four claims.  If a process stalls between two instructions for so long,
 * and the words coincide, its request may be counted for another key.  read() repairs a state that
 * does not fit the tag.
 *
 * The epoch is the time of the last use, in a coarse unit of the algorithm.  A state that is two
 * epochs old has expired, and its own time stamp, which may have wrapped, is not read.
 *
 * The tag of a key with its own window has the number of binary digits of this window, so that
 * requests to other keys know the length of its epochs (tag_epoch.hpp):
 *
 *     tag    fingerprint 33 | digits - 7 in 5 | 1 | epoch 23 | generation 2
 */
struct Slot {
    Atomic<uint64_t> tag;
    Atomic<uint64_t> state;
};

struct alignas(64) Line {
    static constexpr unsigned kSlots = 4;

    Slot slot[kSlots];
};

static_assert(Atomic<uint64_t>::is_always_lock_free, "64-bit atomics");
static_assert(sizeof(Slot) == 16 && sizeof(Line) == 64, "16 bytes a key");

/* The rank of a state tells how much its key would lose by an eviction.  A request that needs the
 * slot does not know the key's limit.  Used units alone would favour large limits that are hardly
 * used over small limits that are almost reached.  So a bit in the state tells whether half of the
 * limit was used when the state was made.  States with this bit rank above all others; units
 * decide between equals. */
constexpr uint64_t kNearLimit = 1ULL << 56;

constexpr bool is_near_limit(uint64_t used, uint64_t limit) { return used >= limit - used; }

constexpr uint64_t eviction_rank(uint64_t used, bool is_near) {
    return used == 0 ? 0 : used + (is_near ? kNearLimit : 0);
}

/* Functions on tags.  Epochs are compared modulo 2^23. */
namespace tag {

constexpr unsigned kGenerationBits = 2;
constexpr unsigned kEpochBits = 23;
constexpr unsigned kFingerprintShift = kGenerationBits + kEpochBits + 1;

constexpr uint64_t kGenerationMask = (1u << kGenerationBits) - 1;
constexpr uint64_t kEpochMask = (1u << kEpochBits) - 1;
constexpr uint64_t kKeyWindow = 1u << (kFingerprintShift - 1);

static_assert(Key::kFingerprintBits + kFingerprintShift == 64, "one word");

/* Makes a tag in generation 0. */
inline uint64_t make(uint64_t fingerprint, const TagEpoch &epoch) {
    assert(fingerprint != 0 && fingerprint >> Key::kFingerprintBits == 0);
    uint64_t number = (epoch.number & kEpochMask) << kGenerationBits;
    if (epoch.digits == 0) { return fingerprint << kFingerprintShift | number; }
    return with_window_digits(fingerprint, epoch.digits) << kFingerprintShift | kKeyWindow | number;
}

/* Returns true if the key has its own window. */
inline bool has_key_window(uint64_t tag) { return (tag & kKeyWindow) != 0; }

/* Returns the binary digits of the key's window. */
inline unsigned digits(uint64_t tag) { return window_digits(tag >> kFingerprintShift); }

inline uint64_t generation(uint64_t tag) { return tag & kGenerationMask; }

inline bool same_key(uint64_t a, uint64_t b) { return (a ^ b) >> kFingerprintShift == 0; }

/* Returns true if both have the same key and the same epoch. */
inline bool same_time(uint64_t a, uint64_t b) { return (a ^ b) <= kGenerationMask; }

/* Returns the epochs from one tag to a later one; 0 if `then` is a little later than `now`, from a
 * worker with a faster clock. */
inline uint64_t age(uint64_t then, uint64_t now) {
    constexpr uint64_t kAhead = 1024;
    uint64_t passed = ((now | kGenerationMask) - then) >> kGenerationBits & kEpochMask;
    return passed <= kEpochMask - kAhead ? passed : 0;
}

/* Returns the tag in another epoch. */
inline uint64_t in_epoch(uint64_t tag, uint64_t number) {
    constexpr uint64_t kMask = kEpochMask << kGenerationBits;
    return (tag & ~kMask) | (number << kGenerationBits & kMask);
}

} // namespace tag

/* A slot as read at one moment. */
struct Copy {
    enum Kind { none, confirmed, tentative, changed };

    static constexpr unsigned kStateBits = 64 - tag::kGenerationBits;
    static constexpr uint64_t kStateMask = (1ULL << kStateBits) - 1;

    /* The state of a withdrawn copy.  No algorithm makes this state. */
    static constexpr uint64_t kDead = kStateMask;

    Slot *slot;
    uint64_t tag;
    uint64_t state; /* includes its generation */
    Kind kind;

    static Copy read(Slot &slot) { return read(slot, slot.tag.load()); }

    static Copy read(Slot &slot, uint64_t tag) {
        Copy copy = {&slot, tag, slot.state.load(), confirmed};

        if (copy.lag() == 0) {
            copy.kind = copy.bare_state() == kDead ? none : confirmed;
            return copy;
        }

        if (slot.tag.load() != tag) {
            copy.kind = changed;

        } else if (copy.lag() == 1) {
            copy.kind = tentative;
        } else {
            copy.store(kDead);
            copy.kind = changed;
        }

        return copy;
    }

    uint64_t bare_state() const { return state & kStateMask; }

    /* Returns true if the state is unchanged. */
    bool is_same() const { return slot->state.load() == state; }

    /* Returns true if the slot still belongs to the same key; its state may have changed. */
    bool is_kept() const {
        uint64_t now = slot->state.load();
        return (now ^ state) >> kStateBits == 0 && (now & kStateMask) != kDead;
    }

    /* Replaces the state if it is unchanged. */
    bool store(uint64_t next) {
        assert(next <= kStateMask);
        /* a local variable lets the compiler keep the state in a register */
        uint64_t seen = state;

        if (!slot->state.compare_exchange_strong(seen, in_generation(next))) { return false; }

        state = in_generation(next);

        return true;
    }

    /* Replaces the tag if it is unchanged. */
    bool retag(uint64_t next) {
        assert(next != 0);
        assert(tag::generation(next - tag) == 1
               || (tag::same_key(tag, next) && tag::generation(next - tag) == 0));
        uint64_t seen = tag;
        if (!slot->tag.compare_exchange_strong(seen, next)) { return false; }
        tag = next;
        return true;
    }

private:
    uint64_t in_generation(uint64_t next) const {
        return tag::generation(tag) << kStateBits | next;
    }

    /* Returns the generations by which the state is behind the tag. */
    uint64_t lag() const { return tag::generation(tag - (state >> kStateBits)); }
};

} // namespace limit_sliding
