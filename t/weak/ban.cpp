/* Copyright (C) the limit_sliding authors */

/* Bans: two lines of places, which are those of every key. */

#include "scenes.hpp"

#include "core/facts/bans.hpp"

using namespace limit_sliding;

namespace {

constexpr uint64_t kDayMs = 86400000;
constexpr uint64_t kNowMs = 1000 * kDayMs;
constexpr uint64_t kBytes = 64 + 64 * 2;

constexpr PenaltyRule kOnce = {kDayMs, kDayMs, 60000, 1};
constexpr PenaltyRule kTwice = {kDayMs, 4 * kDayMs, 60000, 2};
constexpr PenaltyRule kOften = {kDayMs, kDayMs, 60000, 3};

Bans *bans;

uint64_t hash_of(uint64_t key) { return key << 40 | key; }

template <uint64_t key>
void reject() {
    weak::note(bans->reject(hash_of(key), kTwice, kNowMs).left_ms);
}

template <uint64_t key>
void ban() {
    weak::note(bans->set(hash_of(key), {kDayMs, 0}, kOnce, kNowMs));
}

template <uint64_t key>
void lift() {
    weak::note(bans->lift(hash_of(key), kNowMs));
}

template <uint64_t key>
void find() {
    weak::note(bans->find(hash_of(key), kNowMs).left_ms);
}

void build(void *memory) { bans = Bans::init(memory, kBytes, nullptr); }

void build_counted(void *memory) {
    build(memory);
    bans->reject(hash_of(1), kTwice, kNowMs);
}

void build_banned(void *memory) {
    build(memory);
    bans->set(hash_of(1), {kDayMs, 0}, kOnce, kNowMs);
}

/* All places have counts. */
void build_full(void *memory) {
    build(memory);

    for (uint64_t key = 100; key < 120; key++) {
        bans->reject(hash_of(key), kOften, kNowMs);
    }
}

/* Two places have counts, and the others bans that last longer. */
void build_two_places(void *memory) {
    build(memory);

    for (uint64_t key = 100; key < 106; key++) {
        bans->set(hash_of(key), {kDayMs + 1000, 0}, kOnce, kNowMs);
    }

    bans->reject(hash_of(106), kOften, kNowMs);
    bans->reject(hash_of(107), kOften, kNowMs);
}

/* The same, and one of the counts is higher, until it is lifted. */
void build_unlike_places(void *memory) {
    build_two_places(memory);
    bans->reject(hash_of(106), kOften, kNowMs);
}

void end() {
    find<1>();
    find<2>();
    weak::note(bans->banned(kNowMs, UINT64_MAX));
}

} // namespace

std::vector<weak::Scene> ban_scenes() {
    return {
        {"bans: a new key, three rejections",
         100,
         build,
         {{reject<1>}, {reject<1>}, {reject<1>}},
         end},
        {"bans: a counted key", 100, build_counted, {{reject<1>}, {reject<1>}, {find<1>}}, end},
        {"bans: two keys", 100, build, {{ban<1>}, {ban<2>}, {find<1>, find<2>}}, end},
        {"bans: one key, in a full table", 400, build_full, {{ban<1>}, {ban<1>}, {ban<2>}}, end},
        {"bans: one key, two places and another key",
         100,
         build_two_places,
         {{ban<1>}, {ban<1>}, {reject<107>}},
         end},
        {"bans: one key, claims of two places",
         200,
         build_unlike_places,
         {{lift<106>}, {ban<1>}, {ban<1>}},
         end},
        {"bans: lifted", 100, build_banned, {{lift<1>}, {ban<1>}, {find<1>}}, end},
        {"bans: who bans dies",
         100,
         build_full,
         {{ban<1>}, {ban<1>}, {ban<2>}},
         end,
         nullptr,
         true},
    };
}
