/* Copyright (C) the limit_sliding authors */

/* The table, with states that are one word. */

#include "zone.hpp"

#include "core/table/table.hpp"
#include "core/table/zone.hpp"

namespace {

/* As the API does. */
template <uint64_t key>
void forget() {
    const uint64_t hash = claim_of(key).hash;

    for (unsigned i = 0; i < kSlots; i++) {
        Slot &slot = WordSlots(zone).slot(i / Line::kSlots, i % Line::kSlots);
        Copy copy = Copy::read(slot);

        if (copy.kind == Copy::confirmed
            && copy.tag >> tag::kFingerprintShift == Key(hash, zone->pairs).fingerprint()) {
            copy.store(Copy::kDead);
        }
    }
}

void build_new(void *memory) { make_zone(memory, Algorithm::kCounter, 0, 1); }

void build_known(void *memory) {
    make_zone(memory, Algorithm::kCounter, 0, 3);
    admits(kKey);
}

void build_charged(void *memory) {
    make_zone(memory, Algorithm::kCounter, 0, 2);
    admits(kKey);
    charged = claim_of(kKey);
    acquire(&charged, 1, kNowMs);
}

/* The first slot is a victim's, which may go at any time. */
void build_before(void *memory) {
    make_zone(memory, Algorithm::kCounter, 0, 1);
    admits(kVictim);
}

/* All slots are used; the victim's constrains it least. */
void build_full(void *memory) {
    make_zone(memory, Algorithm::kCounter, 0, 3);

    for (uint64_t key = 100; key < 100 + kSlots - 1; key++) {
        admits(key, 2);
    }

    admits(kVictim);
}

/* All slots are used, and two of them are the least used. */
void build_full_of_two(void *memory) {
    make_zone(memory, Algorithm::kCounter, 0, 3);

    for (uint64_t key = 100; key < 100 + kSlots - 2; key++) {
        admits(key, 2);
    }

    admits(kVictim);
    admits(kVictim + 1);
}

void end_key() { note_remaining(kKey); }

/* A victim that was used before it goes is none, and one that was not has gone. */
void end_victim() {
    note_remaining(kKey);
    note_remaining(kVictim);
}

/* Others may be evicted, or not, by whoever comes first. */
void end_two() {
    note_remaining(kKey);
    note_remaining(kOther);
}

/* The victim is evicted, or another key is, when it was used meanwhile.  In whatever order,
 * the two new keys have what they were admitted. */
bool both_are_there(weak::Outcome &outcome) {
    return outcome.notes[0][0] == 1 && outcome.notes[1][0] == 1 && outcome.end()[0] == 0
           && outcome.end()[2] == 0;
}

/* Two requests of one key that take the limit: one of them is admitted. */
bool one_is_admitted(weak::Outcome &outcome) {
    return outcome.notes[0][0] + outcome.notes[1][0] == 1 && outcome.end()[0] == 0;
}

void build_debt(void *memory) { make_zone(memory, Algorithm::kFixed, 0, 2); }

void build_bucket(void *memory) { make_zone(memory, Algorithm::kTokenBucket, 0, 3); }

void end_debt() {
    note_remaining(kKey);
    note_remaining(kKey, kNowMs + 2 * kWindowMs);
}

} // namespace

std::vector<weak::Scene> table_scenes() {
    constexpr auto one = take<kKey>;

    return {
        {"table: a known key, three requests", 100, build_known, {{one}, {one}, {one}}, end_key},
        {"table: a new key, three requests", 200, build_new, {{one}, {one}, {one}}, end_key},
        {"table: a new key, two requests, one dies",
         200,
         build_known,
         {{one}, {one}, {one}},
         end_key,
         nullptr,
         true},
        {"table: a new key, in two slots",
         400,
         build_before,
         {{forget<kVictim>}, {one}, {one}},
         end_key},
        {"table: a new key, in two slots of a full zone",
         300,
         build_full_of_two,
         {{take<kKey, 3>}, {take<kKey, 3>}, {take<kVictim>}},
         end_key,
         one_is_admitted},
        {"table: two new keys, one slot",
         300,
         build_full,
         {{take<kKey, 3>}, {take<kOther, 3>}, {take<kVictim>}},
         end_two,
         both_are_there},
        {"table: a victim is used meanwhile",
         100,
         build_full,
         {{take<kKey, 3>}, {take<kVictim, 2>}},
         end_victim},
        {"table: a refund", 100, build_charged, {{release_charged<>}, {one}, {one}}, end_key},
        {"table: fixed, charges and a request",
         100,
         build_debt,
         {{owe<kKey, 5>}, {owe<kKey, 1>}, {one}},
         end_debt},
        {"table: a bucket, requests and a refund",
         100,
         build_bucket,
         {{take<kKey, 2>, give_some_back<kKey, 1>}, {take<kKey, 2>}, {one}},
         end_key},
    };
}
