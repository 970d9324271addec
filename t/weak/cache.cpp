/* Copyright (C) the limit_sliding authors */

/* What is known of keys, and may be forgotten, but is never another key's; and units that
 * wait to be told to Redis, of which none is lost. */

#include "scenes.hpp"

#include "core/facts/override_cache.hpp"
#include "redis/shared/outbox.hpp"
#include "redis/shared/refusals.hpp"

using namespace limit_sliding;

namespace {

constexpr uint64_t kNowMs = 5000000;

/* In the places of one set. */
uint64_t hash_of(uint64_t key) { return key << 8 | uint64_t{1} << 40 | 1; }

/* ---- limits ---- */

OverrideCache *cache;

void build_cache(void *memory) {
    cache = OverrideCache::init(memory, OverrideCache::kBytesMin);
    cache->set(hash_of(1), {10, {}});
}

template <uint64_t key, uint64_t limit>
void set() {
    cache->set(hash_of(key), {limit, {}});
}

template <uint64_t key>
void find() {
    weak::note(cache->find(hash_of(key)).limit);
}

/* Takes places of other keys, until one is the first key's. */
void fill() {
    for (uint64_t key = 10; key < 18; key++) {
        cache->set(hash_of(key), {key, {}});
    }
}

void end_cache() {
    find<1>();
    find<2>();
}

bool is_limit_of(uint64_t limit, uint64_t key) { return limit == 0 || limit / 10 == key; }

bool has_overrides(weak::Outcome &outcome) {
    return is_limit_of(outcome.end()[0], 1) && is_limit_of(outcome.end()[1], 2)
           && is_limit_of(outcome.notes[2][0], 1) && is_limit_of(outcome.notes[2][1], 2);
}

/* ---- refusals ---- */

Refusals *refusals;

void build_refusals(void *memory) { refusals = Refusals::init(memory, 64 + 4 * 128); }

/* All that it says follows from key and number. */
template <uint64_t key, uint64_t number>
void refuse() {
    const uint64_t n = 10 * key + number;

    refusals->add(hash_of(key), kNowMs, {kNowMs + n, kNowMs + n, n, n, n});
}

template <uint64_t key>
void find_refusal() {
    Refusal refusal;

    if (!refusals->find(hash_of(key), kNowMs, &refusal)) { return; }

    weak::check(refusal.limit / 10 == key && refusal.remaining == refusal.limit
                    && refusal.reset_ms == refusal.limit
                    && refusal.until_ms == kNowMs + refusal.limit,
                "a refusal of several");
}

void end_refusals() {
    find_refusal<1>();
    find_refusal<2>();
}

bool accept(weak::Outcome &) { return true; }

/* ---- units that wait ---- */

constexpr size_t kOutboxBytes = 64 + 256;

Outbox *outbox;

/* Reports all units of a key.  Returns false if there are none to be reported. */
bool report(uint64_t key, uint64_t at_ms, int64_t *units) {
    Outbox::Report report;
    uint64_t due_ms;
    if (outbox->take(hash_of(key), at_ms, 1000, true, 1, &report, &due_ms)
        != Outbox::Took::kTaken) {
        return false;
    }

    *units = report.units;
    outbox->done(hash_of(key), at_ms + 1000, report,
                 {report.units, false, at_ms + 1000, 0, 0, false}, &due_ms);
    return true;
}

void build_outbox(void *memory) {
    uint64_t due_ms;

    outbox = Outbox::init(memory, kOutboxBytes);
    outbox->add(hash_of(1), 1, kNowMs - 1000, 1000, &due_ms);
}

/* The other keys can be evicted. */
void build_crowd(void *memory) {
    build_outbox(memory);

    for (uint64_t key = 10; key < 13; key++) {
        int64_t units;
        uint64_t due_ms;

        outbox->add(hash_of(key), 1, kNowMs - 20000, 1000, &due_ms);
        report(key, kNowMs - 19000, &units);
    }
}

/* Only the second key can be evicted: the units of the others wait, but not for so long that
 * nobody is expected to send them. */
void build_idle(void *memory) {
    int64_t units;
    uint64_t due_ms;

    outbox = Outbox::init(memory, kOutboxBytes);
    outbox->add(hash_of(2), 1, kNowMs - 20000, 1000, &due_ms);

    for (uint64_t key : {10, 11, 12}) {
        outbox->add(hash_of(key), 1, kNowMs - 1000, 1000, &due_ms);
    }

    report(2, kNowMs - 19000, &units);
}

template <uint64_t key>
void add() {
    uint64_t due_ms;
    const bool is_full
        = outbox->add(hash_of(key), 1, kNowMs, 1000, &due_ms) == Outbox::Added::kFull;

    weak::note(10 * key + !is_full);
}

template <uint64_t key>
void take() {
    int64_t units;

    if (report(key, kNowMs - 1000, &units)) { weak::note(1000 + 10 * key + units); }
}

void end_outbox() {
    weak::note(1010 + outbox->units(hash_of(1)));
    weak::note(1020 + outbox->units(hash_of(2)));
}

/* So many were the first key's. */
template <int built>
bool no_unit_is_lost(weak::Outcome &outcome) {
    int left[3] = {0, built, 0};

    for (unsigned process = 0; process <= weak::kProcesses; process++) {
        for (unsigned i = 0; i < outcome.counts[process]; i++) {
            const uint64_t n = outcome.notes[process][i];
            const int units = static_cast<int>(n % 10);

            left[n / 10 % 10] += n < 1000 ? units : -units;
        }
    }

    return left[1] == 0 && left[2] == 0;
}

} // namespace

std::vector<weak::Scene> cache_scenes() {
    return {
        {"override cache: two keys and a reader",
         100,
         build_cache,
         {{set<1, 11>, set<2, 21>}, {set<2, 22>, set<1, 12>}, {find<1>, find<2>}},
         end_cache,
         has_overrides},
        {"override cache: a place is taken",
         50,
         build_cache,
         {{fill}, {set<1, 11>, set<2, 22>}, {find<1>, find<2>}},
         end_cache,
         has_overrides},
        {"refusals: two keys and a reader",
         100,
         build_refusals,
         {{refuse<1, 1>, refuse<2, 2>},
          {refuse<2, 3>, refuse<1, 4>},
          {find_refusal<1>, find_refusal<2>}},
         end_refusals,
         accept},
        {"outbox: units of a key",
         100,
         build_outbox,
         {{add<1>, add<1>}, {take<1>}, {add<1>, take<1>}},
         end_outbox,
         no_unit_is_lost<1>},
        {"outbox: keys are evicted",
         100,
         build_crowd,
         {{add<2>, take<2>}, {take<1>, add<1>}, {add<2>, add<1>}},
         end_outbox,
         no_unit_is_lost<1>},
        {"outbox: a key is evicted as it returns",
         100,
         build_idle,
         {{add<1>}, {add<2>}, {add<2>}},
         end_outbox,
         no_unit_is_lost<0>},
    };
}
