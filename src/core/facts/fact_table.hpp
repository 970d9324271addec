/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "core/base/atomics.hpp"
#include "core/base/hashes.hpp"
#include "core/base/page_marks.hpp"

namespace limit_sliding {

/* The worth of a fact.  Facts of the lowest kind are evicted first, within a kind facts of the
 * lowest rank.  A table defines its kinds from kFirst on.  Facts of the kind kPinned are not
 * evicted. */
struct Worth {
    enum Kind { kNothing, kClaim, kFirst, kPinned = INT32_MAX };

    int kind;
    uint64_t rank;

    bool operator<(const Worth &other) const {
        return kind != other.kind ? kind < other.kind : rank < other.rank;
    }
};

/*
 * Facts about keys beside their histories, 16 bytes each: a fact has 60 bits.
 *
 * A place is two words, and four places are a cache line:
 *
 *     tag    1 | 50 bits of the key's hash | generation 13;  0: never used
 *     state  0 | fact 60 | generation 3
 *            or the tag of the key that claims the place
 *
 * The hash selects two lines.  A key takes their first place that was never used; else the place
 * with the fact of the least worth.
 *
 * A key takes a place by three compare-and-swaps.  The first one replaces the state by the key's
 * tag, and no other key can change the state from then on.  The second one replaces the tag.  The
 * third one, after a search for the key in its other places, replaces the claim by the first
 * state.  If two processes claim places for one key at the same time, the claim at the higher
 * address is withdrawn.  The claim of a dead process can be taken over.  Each claim advances the
 * generation, so that a stalled process cannot replace the state of another key.
 *
 * A table may have further words for each place, which are 0 at first.  They stay when another key
 * takes the place: a process that is stalled could otherwise delete words of that key.  The key's
 * generation tells whose words they are.
 *
 * The lines, the further words, and the marks of pages of lines follow the table in shared memory.
 */
class alignas(64) FactTable {
public:
    static constexpr size_t kBytesMin = 128;

    uint64_t places() const { return line_count_ * kLinePlaces; }

protected:
    static constexpr size_t kLinePlaces = 4;
    static constexpr unsigned kFactBits = 60;

    /* `bytes` >= kBytesMin, plus 32 for each further word of a place, include the table itself.
     * The secret keeps clients from choosing keys that share places; 0 if the hashes depend on a
     * secret already.  `further` is the number of further words of a place. */
    void init(size_t bytes, uint64_t secret, unsigned further = 0);

    /* Calls visit(fact) with the fact of a key, for each of its places until visit() returns true;
     * most keys have one place.  Returns true if visit() did. */
    template <class Visit>
    bool look(uint64_t hash, const Visit &visit) const;

    /* Returns the further words of a key's place, and sets *generation to the key's generation
     * there, below 2^13; nullptr: the key has no place. */
    uint64_t *further(uint64_t hash, uint64_t *generation) const;

    /* Changes the fact of a key by change(fact), which gets 0 if the key has none.  A new key
     * takes the place of the fact with the least worth(hash, fact); `hash` has the lowest 50 bits.
     * If the kind of this fact is `kept` or higher, the new fact must be worth at least as much.
     * Returns true if the fact was stored; false if change() returned false or the key got no
     * place.  Sets `evicted` to the rank of an evicted fact of kind `kept` or higher, else to 0. */
    template <class Worthy, class Change>
    bool update(uint64_t hash, int kept, const Worthy &worth, const Change &change,
                uint64_t *evicted = nullptr);

    /* Calls visit(fact) for the places of every step-th line. */
    template <class Visit>
    void walk(uint64_t step, const Visit &visit) const;

    /* Deletes the facts for which is_over(hash, fact) is true, in n lines, or in all, from number
     * `first` on, modulo the number of lines.  `hash` has the lowest 50 bits.  Returns the number
     * of deleted facts. */
    template <class IsOver>
    uint64_t sweep(uint64_t first, uint64_t n, const IsOver &is_over);

    /* Returns a time after which no key has a fact that counts.  Requests read it first. */
    uint64_t until_ms() const { return load(&until_ms_); }
    void raise_until(uint64_t until_ms);

private:
    static constexpr uint64_t kTag = uint64_t{1} << 63;
    static constexpr uint64_t kTagGenerations = 8192;
    static constexpr unsigned kFactShift = 3; /* also the bits of the generation */
    static constexpr unsigned kLinesOfKey = 2;

    /* A claim of no key. */
    static constexpr uint64_t kWithdrawn = kTag;

    struct Place {
        uint64_t tag;
        uint64_t state;
    };

    struct alignas(64) Line {
        Place places[kLinePlaces];
    };

    /* A place as read at one moment.  The state is a claim, or belongs to this tag. */
    struct Seen {
        Place *place;
        uint64_t tag;
        uint64_t state;

        /* Returns false if another key took the place between the reads. */
        static bool of(Place &place, Seen *seen) {
            *seen = {&place, read(place.tag), read(place.state)};
            return read(place.tag) == seen->tag;
        }

        bool holds(uint64_t key_tag) const {
            return tag != 0 && !is_claim(state) && is_same_key(tag, key_tag);
        }

        uint64_t fact() const { return is_claim(state) ? 0 : state >> kFactShift; }
    };

    struct Search {
        enum { kHeld, kFree, kAgain } result;
        Seen seen;   /* place of the key, or a place to take */
        Worth worth; /* worth of the fact in this place */
    };

    static bool is_claim(uint64_t state) { return (state & kTag) != 0; }
    static bool is_same_key(uint64_t tag, uint64_t other) {
        return (tag ^ other) < kTagGenerations;
    }

    /* Returns the tag of a key, of generation 0. */
    static uint64_t tag_of(uint64_t hash) { return hash * kTagGenerations | kTag; }

    static uint64_t hash_of(uint64_t tag) { return (tag & ~kTag) / kTagGenerations; }

    static uint64_t state_of(uint64_t fact, uint64_t tag) {
        assert(fact >> kFactBits == 0);
        return fact << kFactShift | tag % (1u << kFactShift);
    }

    /* Sequentially consistent, because the search for other claims of a key needs a total order. */
    static uint64_t read(const uint64_t &word) {
        return shared(const_cast<uint64_t *>(&word)).load();
    }

    static bool replace(uint64_t *word, uint64_t old, uint64_t next) {
        return shared(word).compare_exchange_strong(old, next);
    }

    Line *lines() const { return reinterpret_cast<Line *>(const_cast<FactTable *>(this) + 1); }

    uint64_t keyed(uint64_t hash) const { return secret_ == 0 ? hash : mixed(hash ^ secret_); }

    Line &line_of(uint64_t keyed_hash, unsigned choice) const {
        const uint64_t half = choice == 0 ? keyed_hash >> 32 : keyed_hash & UINT32_MAX;
        return lines()[half * line_count_ >> 32];
    }

    template <class Visit>
    bool visit_places(uint64_t hash, const Visit &visit) const;
    template <class Worthy>
    Search search(uint64_t keyed_hash, const Worthy &worth) const;
    bool is_alone(const Place &own, uint64_t keyed_hash, uint64_t tag) const;
    bool take(const Seen &seen, uint64_t keyed_hash, uint64_t fact);

    uint64_t secret_;
    uint64_t line_count_;
    uint64_t until_ms_;
    uint64_t further_count_;
    PageMarks marks_;
};

/* Calls visit(place, tag, fact) for each place of a key until visit() returns true. */
template <class Visit>
inline bool FactTable::visit_places(uint64_t hash, const Visit &visit) const {
    const uint64_t keyed_hash = keyed(hash);
    const uint64_t tag = tag_of(keyed_hash);

    for (unsigned choice = 0; choice < kLinesOfKey; choice++) {
        for (const Place &place : line_of(keyed_hash, choice).places) {
            const uint64_t seen = read(place.tag);

            if (seen == 0) { return false; }

            if (!is_same_key(seen, tag)) { continue; }

            const uint64_t state = read(place.state);

            /* the place has not changed its key between the reads */
            if (!is_claim(state) && read(place.tag) == seen
                && visit(place, seen, state >> kFactShift)) {
                return true;
            }
        }
    }

    return false;
}

/* Inline, because each request calls this function while some key of the zone has a fact. */
template <class Visit>
inline bool FactTable::look(uint64_t hash, const Visit &visit) const {
    return visit_places(hash, [&](const Place &, uint64_t, uint64_t fact) { return visit(fact); });
}

template <class Worthy>
FactTable::Search FactTable::search(uint64_t keyed_hash, const Worthy &worth) const {
    const uint64_t tag = tag_of(keyed_hash);
    Search found = {Search::kAgain, {}, {Worth::kPinned, UINT64_MAX}};

    for (unsigned choice = 0; choice < kLinesOfKey; choice++) {
        for (Place &place : line_of(keyed_hash, choice).places) {
            Seen seen;

            if (!Seen::of(place, &seen)) { return {Search::kAgain, {}, {}}; }

            if (seen.tag == 0) { return {Search::kFree, seen, {Worth::kNothing, 0}}; }

            if (seen.holds(tag)) { return {Search::kHeld, seen, {}}; }

            /* a claim of this key, maybe of a dead process */
            if (is_claim(seen.state) && is_same_key(seen.state, tag)) {
                return {Search::kFree, seen, {Worth::kClaim, 0}};
            }

            const Worth here = is_claim(seen.state) ? Worth{Worth::kClaim, 0}
                                                    : worth(hash_of(seen.tag), seen.fact());

            if (here < found.worth) { found = {Search::kFree, seen, here}; }
        }
    }

    return found;
}

template <class Worthy, class Change>
bool FactTable::update(uint64_t hash, int kept, const Worthy &worth, const Change &change,
                       uint64_t *evicted) {
    const uint64_t keyed_hash = keyed(hash);

    for (unsigned i = 0; i < kAttempts; i++) {
        const Search found = search(keyed_hash, worth);

        if (found.result == Search::kAgain) { continue; }

        const bool is_held = found.result == Search::kHeld;
        uint64_t fact = is_held ? found.seen.fact() : 0;

        if (!change(fact)) { return false; }

        if (!is_held && found.worth.kind == Worth::kPinned) { return false; }

        if (!is_held && found.worth.kind >= kept && worth(keyed_hash, fact) < found.worth) {
            return false;
        }

        if (is_held ? replace(&found.seen.place->state, found.seen.state,
                              state_of(fact, found.seen.tag))
                    : take(found.seen, keyed_hash, fact)) {
            if (evicted != nullptr) {
                *evicted = is_held || found.worth.kind < kept ? 0 : found.worth.rank;
            }

            return true;
        }
    }

    return false;
}

template <class Visit>
void FactTable::walk(uint64_t step, const Visit &visit) const {
    for (uint64_t i = 0; i < line_count_; i += step) {
        if (!marks_.is_used(lines(), &lines()[i])) { continue; }

        for (const Place &place : lines()[i].places) {
            const uint64_t state = load(&place.state);

            if (!is_claim(state)) { visit(state >> kFactShift); }
        }
    }
}

template <class IsOver>
uint64_t FactTable::sweep(uint64_t first, uint64_t n, const IsOver &is_over) {
    const uint64_t end = first + std::min(n, line_count_);
    uint64_t deleted = 0;

    for (uint64_t i = first; i < end; i++) {
        Line &line = lines()[i % line_count_];

        if (!marks_.is_used(lines(), &line)) { continue; }

        for (Place &place : line.places) {
            Seen seen;

            deleted += Seen::of(place, &seen) && seen.fact() != 0
                       && is_over(hash_of(seen.tag), seen.fact())
                       && replace(&place.state, seen.state, state_of(0, seen.tag));
        }
    }

    return deleted;
}

} // namespace limit_sliding
