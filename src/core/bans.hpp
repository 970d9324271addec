/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/atomics.hpp"
#include "core/mix.hpp"
#include "core/zone.hpp"

namespace limit_sliding {

/* The most rejections that may be asked for before a ban. */
constexpr uint32_t kPenaltyAfterMax = 1000;

/* When a key is banned, and how long. */
struct PenaltyRule {
    uint64_t penalty_ms; /* of the first ban; at least 1, at most max_ms.  0: there are none */
    uint64_t max_ms;     /* of the longest; a key has a good name again so long after the last */
    uint64_t window_ms;  /* in which rejections are counted; it begins with the first */
    uint32_t after;      /* rejections that lead to a ban; 1 .. kPenaltyAfterMax */

    /* Returns the length of a ban after so many doublings, up to 31. */
    uint64_t length_ms(unsigned doublings) const;
};

struct Ban {
    uint64_t left_ms;   /* 0: the key is not banned */
    unsigned doublings; /* of the penalty; more would not make it longer */
};

/* The words of a place, see Bans. */
namespace ban_words {

/* Fields of a tag. */
constexpr uint64_t kTag = uint64_t{1} << 63;
constexpr uint64_t kTagGenerations = 8192;

/* Fields of a state, from the lowest bit on. */
constexpr uint64_t kStateGenerations = 8;
constexpr unsigned kTimeShift = 3;
constexpr uint64_t kTimeMax = (uint64_t{1} << 40) - 1;
constexpr unsigned kForgottenShift = 43;
constexpr unsigned kDoublingsShift = 48;
constexpr uint64_t kDoublingsMax = 31;
constexpr unsigned kRejectionsShift = 53;

inline bool is_same_key(uint64_t tag, uint64_t other) { return (tag ^ other) < kTagGenerations; }

/* Returns the tag of a key, of generation 0. */
inline uint64_t tag_of(uint64_t hash) { return hash * kTagGenerations | kTag; }

/* Sequentially consistent, as the search for other claims of a key has to be. */
inline uint64_t read(const uint64_t &word) { return shared(const_cast<uint64_t *>(&word)).load(); }

} // namespace ban_words

/*
 * Keys that are banned, or have been rejected lately, in 16 bytes each.
 *
 * A place is two words, and four places are a cache line:
 *
 *     tag    1 | 50 bits of the key's hash | generation 13;  0: never used
 *     state  0 | rejections 10 | doublings 5 | forgotten 5 | time 40 | generation 3
 *            or the tag of the key that claims the place
 *
 * With rejections, the time is that of the first of them; doublings are those of the
 * next ban, and forgotten tells when there are none any more, in 16ths of the longest
 * ban, modulo 32.  Without, the time is the end of a ban, and doublings are its own.
 *
 * The hash selects two lines.  A key takes the first place of these that was never
 * used; else one that is over, then one that only counts, the fewest rejections first.
 * A ban gives way only to a ban that ends later.
 *
 * A key takes a place in three steps, each of them one compare-and-swap: its tag
 * replaces the state, which so cannot change any more, then the tag, and then the first
 * state replaces the claim, after a look at all other places of the key.  If another
 * process claims one for the same key at the same time, the claim at the higher address
 * is withdrawn.  A claim that is left by a process that died is as good as a place that
 * is over.  The generation is advanced by every claim, so a process that was stalled
 * does not take the state of another key for the one that it has read.
 */
class alignas(64) Bans {
public:
    static constexpr size_t kBytesMin = 128;

    /* Makes it of `memory`: `bytes` long, at least kBytesMin, zeroed, aligned to 64.
     * The secret keeps others from choosing keys that share places; null: hashes are
     * secret already. */
    static Bans *init(void *memory, size_t bytes, const uint8_t secret[kSecretBytes]);

    /* Returns the hash of a key that is the same on all nodes. */
    static uint64_t common_hash(std::string_view key);

    /* All times are of one clock, in ms, below 2^40.  Hashes have 64 bits, and are
     * unlike each other unless their keys are the same. */

    /* Returns the ban of a key. */
    Ban find(uint64_t hash, uint64_t now_ms) const;

    /* Counts a rejection of a key.  Returns the ban that begins with it, if one does: a
     * banned key gets no other. */
    Ban reject(uint64_t hash, const PenaltyRule &rule, uint64_t now_ms);

    /* Bans a key for at least ban.left_ms, 1 to a year: the later end, and more
     * doublings, win over what is known.  Returns false if that says nothing new, or
     * if there is no place for it. */
    bool set(uint64_t hash, const Ban &ban, const PenaltyRule &rule, uint64_t now_ms);

    /* Forgets all about a key.  Returns false if it was not banned. */
    bool lift(uint64_t hash, uint64_t now_ms);

    /* Counts the keys that are banned.  Beyond so many places, this reads only a part of
     * them, and estimates. */
    uint64_t banned(uint64_t now_ms, uint64_t places_max) const;

    /* Returns how many keys there are places for. */
    uint64_t places() const;

private:
    static constexpr size_t kLinePlaces = 4;
    static constexpr unsigned kLinesOfKey = 2;

    struct Place {
        uint64_t tag;
        uint64_t state;
    };

    struct alignas(64) Line {
        Place places[kLinePlaces];
    };

    struct Seen;
    struct Search;

    Line *lines() const { return reinterpret_cast<Line *>(const_cast<Bans *>(this) + 1); }

    uint64_t keyed(uint64_t hash) const { return secret_ == 0 ? hash : mixed(hash ^ secret_); }

    Line &line_of(uint64_t keyed_hash, unsigned choice) const {
        const uint64_t half = choice == 0 ? keyed_hash >> 32 : keyed_hash & UINT32_MAX;

        return lines()[half * line_count_ >> 32];
    }

    Search search(uint64_t keyed_hash, const PenaltyRule &rule, uint64_t now_ms) const;
    bool is_alone(const Place &own, uint64_t keyed_hash, uint64_t tag) const;
    bool take(const Seen &seen, uint64_t keyed_hash, uint64_t state);
    void raise_until(uint64_t until_ms);
    template <class Next>
    bool update(uint64_t hash, const PenaltyRule &rule, uint64_t now_ms, const Next &next);

    uint64_t secret_;
    uint64_t line_count_;
    uint64_t until_ms_; /* no ban lasts longer */
};

/* It is inline for the sake of banned requests. */
inline Ban Bans::find(uint64_t hash, uint64_t now_ms) const {
    using namespace ban_words;

    if (now_ms >= load(&until_ms_)) { return {0, 0}; }

    const uint64_t keyed_hash = keyed(hash);
    const uint64_t tag = tag_of(keyed_hash);

    for (unsigned choice = 0; choice < kLinesOfKey; choice++) {
        for (const Place &place : line_of(keyed_hash, choice).places) {
            const uint64_t seen = read(place.tag);

            if (seen == 0) { return {0, 0}; }

            if (!is_same_key(seen, tag)) { continue; }

            const uint64_t state = read(place.state);
            const uint64_t end_ms = state >> kTimeShift & kTimeMax;

            /* a ban, and of no key that took the place between the reads */
            if (state >> kRejectionsShift == 0 && end_ms > now_ms && read(place.tag) == seen) {
                return {end_ms - now_ms, static_cast<unsigned>(state >> kDoublingsShift)};
            }
        }
    }

    return {0, 0};
}

} // namespace limit_sliding
