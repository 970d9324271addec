/* Copyright (C) the limit_sliding authors */

/* Histories of events: logs, and counters of several parts, whose rings are shorter. */

#include "zone.hpp"

namespace {

constexpr uint64_t kPartMs = kWindowMs / 2;

/* A log of so many events of one unit each, one in each ms. */
void build_log(void *memory, uint64_t events, uint64_t of) {
    make_zone(memory, Algorithm::kLog, 0, of);

    for (uint64_t i = events; i > 0; i--) {
        admits(kKey, 1, kNowMs - i);
    }
}

void build_new(void *memory) { build_log(memory, 0, 2); }

void build_short(void *memory) { build_log(memory, 2, 4); }

void build_last(void *memory) { build_log(memory, 2, 3); }

/* The next event is the first one that replaces another. */
void build_long(void *memory) { build_log(memory, kLogRing - 1, kLogRing + 1); }

void build_charged(void *memory) {
    build_log(memory, 1, 3);
    charged = claim_of(kKey);
    acquire(&charged, 1, kNowMs);
}

void build_victims(void *memory) {
    make_zone(memory, Algorithm::kLog, 0, 2);

    for (uint64_t key = 100; key < 100 + kSlots; key++) {
        admits(key, 1, kNowMs - 1);
    }
}

/* A counter of two parts, whose ring of six has come round. */
void build_counter(void *memory) {
    make_zone(memory, Algorithm::kCounter, 2, 5);

    for (uint64_t i = 7; i > 0; i--) {
        admits(kKey, 1, kNowMs - i * kPartMs);
    }
}

void end() {
    note_remaining(kKey, kNowMs + 3);
    note_remaining(kKey, kNowMs + kWindowMs);
    note_remaining(kKey, kNowMs + kWindowMs + 1);
}

void end_counter() {
    note_remaining(kKey, kNowMs + 3);
    note_remaining(kKey, kNowMs + kPartMs);
    note_remaining(kKey, kNowMs + 2 * kPartMs);
}

/* Two requests of one key and one of another, each of the whole limit. */
bool each_is_admitted_once(weak::Outcome &outcome) {
    return outcome.notes[0][0] + outcome.notes[1][0] == 1 && outcome.notes[2][0] == 1
           && outcome.end()[0] == 0 && outcome.end()[2] == 0;
}

void end_two() {
    note_remaining(kKey);
    note_remaining(kOther);
}

} // namespace

std::vector<weak::Scene> ring_scenes() {
    constexpr auto one = take<kKey>;
    constexpr auto later = take<kKey, 1, 1>;

    return {
        {"rings: a new key, three requests", 50, build_new, {{one}, {one}, {one}}, end},
        {"rings: a known key, requests in one ms", 50, build_short, {{one}, {one}, {one}}, end},
        {"rings: a known key, requests one after the other",
         100,
         build_short,
         {{one}, {later}, {take<kKey, 1, 2>}},
         end},
        {"rings: one unit is left", 50, build_last, {{one}, {later}, {later}}, end},
        {"rings: pages", 50, build_long, {{one}, {later}, {take<kKey, 1, 2>}}, end},
        {"rings: a refund", 50, build_charged, {{release_charged<1>}, {later}, {later}}, end},
        {"rings: charges and a request",
         50,
         build_last,
         {{owe<kKey, 4>}, {owe<kKey, 1>}, {one}},
         end},
        {"rings: two new keys of a full zone",
         20,
         build_victims,
         {{take<kKey, 2>}, {take<kKey, 2>}, {take<kOther, 2>}},
         end_two,
         each_is_admitted_once},
        {"rings: a counter of two parts", 50, build_counter, {{one}, {one}, {one}}, end_counter},
        {"rings: a counter, requests in two parts",
         50,
         build_counter,
         {{one, one}, {take<kKey, 1, kPartMs>}, {one}},
         end_counter},
        {"rings: who requests dies",
         100,
         build_short,
         {{one}, {later}, {later}},
         end,
         nullptr,
         true},
    };
}
