/* Copyright (C) the limit_sliding authors */

#include "core/facts/fact_table.hpp"

namespace limit_sliding {

void FactTable::init(size_t bytes, uint64_t secret, unsigned further) {
    const size_t line_bytes = sizeof(Line) + kLinePlaces * further * sizeof(uint64_t);
    assert(bytes >= sizeof(FactTable) + line_bytes);
    secret_ = secret;
    further_count_ = further;
    line_count_ = marks_.init(bytes - sizeof(FactTable)) / line_bytes;
}

uint64_t *FactTable::further(uint64_t hash, uint64_t *generation) const {
    uint64_t *words = nullptr;
    visit_places(hash, [&](const Place &place, uint64_t tag, uint64_t) {
        *generation = tag % kTagGenerations;
        words = reinterpret_cast<uint64_t *>(lines() + line_count_)
                + static_cast<uint64_t>(&place - lines()->places) * further_count_;
        return true;
    });
    return words;
}

void FactTable::raise_until(uint64_t until_ms) {
    uint64_t old = load(&until_ms_);
    while (old < until_ms && !shared(&until_ms_).compare_exchange_weak(old, until_ms)) {}
}

/* Searches for other places of the key that has claimed `own`.  Withdraws claims at higher
 * addresses.  Returns false if the claim `own` must be withdrawn. */
bool FactTable::is_alone(const Place &own, uint64_t keyed_hash, uint64_t tag) const {
    for (unsigned choice = 0; choice < kLinesOfKey; choice++) {
        for (Place &place : line_of(keyed_hash, choice).places) {
            Seen seen;

            if (&place == &own) { continue; }

            if (!Seen::of(place, &seen)) { return false; }

            if (is_claim(seen.state) && is_same_key(seen.state, tag)) {
                if (&place < &own || !replace(&place.state, seen.state, kWithdrawn)) {
                    return false;
                }
            } else if (seen.holds(tag)) {
                return false;
            }

            if (seen.tag == 0) { return true; }
        }
    }

    return true;
}

/* Claims a place, or continues a claim of the same key.  Returns false if another process was
 * faster. */
bool FactTable::take(const Seen &seen, uint64_t keyed_hash, uint64_t fact) {
    Place &place = *seen.place;
    const uint64_t key_tag = tag_of(keyed_hash);
    const bool goes_on = seen.tag == seen.state && is_same_key(seen.tag, key_tag);
    const uint64_t tag = goes_on ? seen.tag : key_tag | (seen.tag + 1) % kTagGenerations;

    if (seen.tag == 0) { marks_.mark(lines(), &place); }

    if (!replace(&place.state, seen.state, tag)) { return false; }

    if (!replace(&place.tag, seen.tag, tag)) { return false; }

    if (!is_alone(place, keyed_hash, tag)) {
        replace(&place.state, tag, kWithdrawn);
        return false;
    }

    return replace(&place.state, tag, state_of(fact, tag));
}

} // namespace limit_sliding
