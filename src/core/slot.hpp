/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/atomics.hpp"
#include "core/epoch.hpp"
#include "core/key.hpp"

namespace limit_sliding {

/*
 * 16 bytes, two words, one key:
 *
 *     tag    fingerprint of the key 38 | 0 | epoch 23 | generation 2;  0: unused
 *     state  generation 2 | the algorithm's state 62
 *
 * The generation of a tag advances whenever the slot is claimed.  So a claim is
 * one compare-and-swap of the tag, and by itself invalidates the state found
 * there:
 *
 *     same generation   confirmed: the key's state; if that is kDead, the
 *                       copy was withdrawn and is none
 *     one behind        tentative: claimed, no state yet
 *     anything else     the tag was read before it changed
 *
 * Generations come round after four claims.  Should that many happen while one
 * process stands still between two instructions, and the words coincide, its
 * request may be counted for another key; read() puts right what does not fit.
 *
 * The epoch is the time, in the algorithm's coarse unit, when the slot was
 * last in use.  A state two epochs old is none, whatever its own, wrapping,
 * time stamp seems to say.
 *
 * A key that has a window of its own has another tag, which tells others by how
 * many binary digits that window has how long its epochs are (epoch.hpp):
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

/* Functions on tags. Epochs are compared modulo 2^23. */
namespace tag {

constexpr unsigned kGenerationBits = 2;
constexpr unsigned kEpochBits = 23;
constexpr unsigned kFingerprintShift = kGenerationBits + kEpochBits + 1;
constexpr unsigned kDigitsBits = 5;

constexpr uint64_t kGenerationMask = (1u << kGenerationBits) - 1;
constexpr uint64_t kEpochMask = (1u << kEpochBits) - 1;
constexpr uint64_t kDigitsMask = (1u << kDigitsBits) - 1;
constexpr uint64_t kOwn = 1u << (kFingerprintShift - 1);

static_assert(Key::kFingerprintBits + kFingerprintShift == 64, "one word");
static_assert(kWindowDigitsMax - kWindowDigitsMin <= kDigitsMask, "and the digits of any window");

/* Makes a key's tag in generation 0. */
inline uint64_t make(uint64_t fingerprint, const Epoch &epoch) {
    uint64_t number = (epoch.number & kEpochMask) << kGenerationBits;

    if (epoch.digits == 0) { return fingerprint << kFingerprintShift | number; }

    uint64_t key = (fingerprint & ~kDigitsMask) | (epoch.digits - kWindowDigitsMin);

    return key << kFingerprintShift | kOwn | number;
}

/* True if the key has a window of its own. */
inline bool is_own(uint64_t tag) { return (tag & kOwn) != 0; }

/* Returns how many binary digits such a window has. */
inline unsigned digits(uint64_t tag) {
    return static_cast<unsigned>(tag >> kFingerprintShift & kDigitsMask) + kWindowDigitsMin;
}

inline uint64_t generation(uint64_t tag) { return tag & kGenerationMask; }

inline bool same_key(uint64_t a, uint64_t b) { return (a ^ b) >> kFingerprintShift == 0; }

/* True if both have the same key and the same epoch. */
inline bool same_time(uint64_t a, uint64_t b) { return (a ^ b) <= kGenerationMask; }

/* Returns the epochs from one tag to a later one; 0 if that is a little
 * earlier, as a worker's clock may be behind another's, or the key owes. */
inline uint64_t age(uint64_t then, uint64_t now) {
    constexpr uint64_t kAhead = 1024;
    uint64_t passed = ((now | kGenerationMask) - then) >> kGenerationBits & kEpochMask;

    return passed <= kEpochMask - kAhead ? passed : 0;
}

/* True if a tag of the same key is of an epoch to come. */
inline bool is_ahead(uint64_t tag, uint64_t now) {
    return !same_time(tag, now) && age(tag, now) == 0;
}

/* Returns the tag so many epochs later. */
inline uint64_t later(uint64_t tag, uint64_t epochs) {
    constexpr uint64_t kMask = kEpochMask << kGenerationBits;

    return (tag & ~kMask) | ((tag + (epochs << kGenerationBits)) & kMask);
}

/* Returns the tag in another epoch. */
inline uint64_t in_epoch(uint64_t tag, uint64_t number) {
    constexpr uint64_t kMask = kEpochMask << kGenerationBits;

    return (tag & ~kMask) | (number << kGenerationBits & kMask);
}

} // namespace tag

/* A slot as one reader saw it. */
struct Copy {
    enum Kind { none, confirmed, tentative, changed };

    static constexpr unsigned kStateBits = 64 - tag::kGenerationBits;
    static constexpr uint64_t kStateMask = (1ULL << kStateBits) - 1;

    /* The state of a copy that was withdrawn; no algorithm makes it. */
    static constexpr uint64_t kDead = kStateMask;

    Slot *slot;
    uint64_t tag;
    uint64_t state; /* with its generation */
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

    /* True if the state is still as seen. */
    bool is_same() const { return slot->state.load() == state; }

    /* True if the slot is still the same key's, whatever its state is now. */
    bool is_kept() const {
        uint64_t now = slot->state.load();

        return (now ^ state) >> kStateBits == 0 && (now & kStateMask) != kDead;
    }

    /* Replaces the state, in the tag's generation, if it is still as seen. */
    bool store(uint64_t next) {
        /* of a local variable, what was seen may stay in a register */
        uint64_t seen = state;

        if (!slot->state.compare_exchange_strong(seen, in_generation(next))) { return false; }

        state = in_generation(next);

        return true;
    }

    /* Replaces the tag if it is still as seen. */
    bool retag(uint64_t next) {
        uint64_t seen = tag;

        if (!slot->tag.compare_exchange_strong(seen, next)) { return false; }

        tag = next;

        return true;
    }

private:
    uint64_t in_generation(uint64_t next) const {
        return tag::generation(tag) << kStateBits | next;
    }

    /* Returns by how many generations the state is behind the tag. */
    uint64_t lag() const { return tag::generation(tag - (state >> kStateBits)); }
};

} // namespace limit_sliding
