/* Copyright (C) the limit_sliding authors */

/* The overrides: one writer, and readers without a lock. */

#include "scenes.hpp"

#include <cstring>

#include "core/facts/overrides.hpp"

using namespace limit_sliding;

namespace {

constexpr uint64_t kNow = 1000;

/* Three keys that begin at one line, each in another place of it, and have unlike tags. */
constexpr uint64_t hash_of(uint64_t key) { return uint64_t{1} << 40 | (key * 2 + 1); }

constexpr uint64_t kKey = 1;
constexpr uint64_t kOther = 2;

Overrides *overrides;
uint8_t scratch[4096];

Overrides::Entry entry_of(uint64_t limit, uint64_t until_s, uint64_t at) {
    return {{limit, {}}, until_s, at};
}

template <uint64_t key, uint64_t limit, uint64_t until_s = kNoEnd>
void set() {
    (void)overrides->set(hash_of(key), entry_of(limit, until_s, 100 * key + limit), kNow);
}

template <uint64_t key>
void remove() {
    (void)overrides->set(hash_of(key), entry_of(kLimitUnset, kNoEnd, 0), kNow);
}

/* As a request does. */
template <uint64_t key, uint64_t later_s = 0>
void find() {
    Override own = {};
    const bool is_found = overrides->count() != 0
                          && overrides->find(
                              hash_of(key), [] { return kNow + later_s; }, &own);

    weak::note(is_found ? own.limit : 0);
}

void note(const Overrides::Entry &entry) {
    weak::note(entry.own.limit);
    weak::note(entry.until_s);
}

/* As the API does. */
template <uint64_t key>
void find_all() {
    Overrides::Entry entry = {};

    if (overrides->find(hash_of(key), &entry)) { note(entry); }
}

/* As the writer of a new file does, beside others. */
template <uint64_t key>
void walk() {
    Overrides::Entry entry = {};
    uint64_t place = 0;
    uint64_t lines_left = UINT64_MAX;
    uint32_t tag;

    while (overrides->next(&place, &lines_left, &entry, &tag)) {
        if (Overrides::is_of(tag, hash_of(key))) { note(entry); }
    }
}

void build(void *memory) {
    overrides = static_cast<Overrides *>(memory);
    overrides->init(8);
}

void build_one(void *memory) {
    build(memory);
    set<kKey, 10>();
}

void build_ending(void *memory) {
    build(memory);
    set<kKey, 10, kNow + 5>();
}

void build_ended(void *memory) {
    build(memory);
    set<kKey, 10, kNow - 5>();
}

/* The first line is full. */
void build_line(void *memory) {
    build(memory);
    set<3, 30>();
    set<4, 40>();
    set<5, 50>();
}

void end() {
    find<kKey>();
    find<kOther>();
}

/* ---- another file ---- */

void load_file() {
    std::memset(scratch, 0, sizeof(scratch));

    OverridesLoad load(*overrides, scratch);

    load.mark(hash_of(kKey), 1);
    load.mark(hash_of(kOther), 2);
    load.remove_unmarked();
    load.set(hash_of(kKey), entry_of(11, kNoEnd, 1), kNow);
    load.set(hash_of(kOther), entry_of(21, kNoEnd, 2), kNow);
    load.end();
}

void build_file(void *memory) {
    build_one(memory);
    set<3, 30>();
}

bool is_one_of(uint64_t limit, uint64_t a, uint64_t b) { return limit == a || limit == b; }

/* The key has a limit all the time, and the other one may have. */
bool has_one_all_the_time(weak::Outcome &outcome) {
    return is_one_of(outcome.notes[1][0], 10, 11)
           && is_one_of(outcome.notes[1][1], outcome.notes[1][0], 11)
           && is_one_of(outcome.notes[2][0], 0, 21) && outcome.end()[0] == 11
           && outcome.end()[1] == 21;
}

/* While a limit changes, it may lack its end; the old one never has the new end. */
bool is_old_or_new(weak::Outcome &outcome) {
    const uint64_t *notes = outcome.notes[1];

    return outcome.counts[1] == 2 && is_one_of(notes[0], 10, 12)
           && (is_one_of(notes[1], kNow + 5, kNow + 9) || notes[1] == kNoEnd)
           && (notes[0] == 12 || notes[1] != kNow + 9) && is_one_of(outcome.notes[2][0], 10, 12);
}

/* The former limit ends meanwhile.  Who has seen the new one goes on to see it. */
bool new_one_stays(weak::Outcome &outcome) {
    const uint64_t *notes = outcome.notes[1];

    return is_one_of(notes[0], 10, 12) && (notes[0] == 10 || notes[1] == 12);
}

/* ---- the file is marked ---- */

void change_file() {
    overrides->file.begin_change();
    set<kKey, 11>();
    overrides->file.end_change(2000, 1, 1);
}

/* As the next writer does. */
void see_file() {
    if (overrides->file.is_current(2000, 1)) { find<kKey>(); }
}

bool is_current(weak::Outcome &outcome) {
    return outcome.counts[1] == 0 || outcome.notes[1][0] == 11;
}

} // namespace

std::vector<weak::Scene> overrides_scenes() {
    static_assert(sizeof(scratch) >= 128 * 5);

    return {
        {"own limits: a new key",
         50,
         build,
         {{set<kKey, 10>}, {find<kKey>, find<kKey>}, {find_all<kKey>}},
         end},
        {"own limits: a place that is given to another key",
         200,
         build_one,
         {{remove<kKey>, set<kOther, 20, kNow + 5>}, {find<kKey>}, {find_all<kKey>}},
         end},
        {"own limits: a place that is given to another key, walked",
         10,
         build_ending,
         {{remove<kKey>, set<kOther, 20>}, {walk<kKey>}, {walk<kOther>}},
         end},
        {"own limits: a limit that has ended is set again",
         100,
         build_ended,
         {{set<kKey, 12, kNow + 9>}, {find<kKey>, find<kKey>}, {find<kKey>}},
         end},
        {"own limits: a limit that is changed",
         100,
         build_ending,
         {{set<kKey, 12, kNow + 9>}, {find_all<kKey>}, {find<kKey>}},
         end,
         is_old_or_new},
        {"own limits: a limit that is changed, and the former one ends",
         100,
         build_ending,
         {{set<kKey, 12, kNow + 9>}, {find<kKey>, find<kKey, 7>}},
         end,
         new_one_stays},
        {"own limits: the next writer",
         100,
         build_one,
         {{change_file}, {see_file}},
         end,
         is_current},
        {"own limits: a key past a full line",
         100,
         build_line,
         {{set<kKey, 10>, set<kOther, 20>, remove<kKey>}, {find<kOther>}, {find<kOther>}},
         end},
        {"own limits: another file",
         5,
         build_file,
         {{load_file}, {find<kKey>, find<kKey>}, {find<kOther>}},
         end,
         has_one_all_the_time},
    };
}
