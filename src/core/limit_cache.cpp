/* Copyright (C) the limit_sliding authors */

#include "core/limit_cache.hpp"

#include <algorithm>

#include "core/atomics.hpp"

namespace limit_sliding {

namespace {

constexpr size_t kPlaces = 8;

/* Others may change a line so often meanwhile before the limit is given up. */
constexpr unsigned kTries = 16;

constexpr unsigned kLimitBits = 30;
constexpr uint64_t kLimitMask = (uint64_t{1} << kLimitBits) - 1;
constexpr uint64_t kOff = kLimitMask;
constexpr uint64_t kUsed = uint64_t{1} << kLimitBits;
constexpr uint64_t kGone = kUsed;

static_assert(kLimitMax < kOff, "more than any limit");

uint64_t word_of(uint64_t hash, uint64_t limit) { return hash << (kLimitBits + 1) | limit; }

uint64_t limit_of(uint64_t word) { return word & kLimitMask; }

bool is_of(uint64_t word, uint64_t hash) {
    return limit_of(word) != 0 && (word & ~(kUsed | kLimitMask)) == word_of(hash, 0);
}

bool exchange(uint64_t *place, uint64_t from, uint64_t to) {
    return shared(place).compare_exchange_strong(from, to, std::memory_order_relaxed);
}

/* Returns the index of the key's place, or of one that was never used, or
 * kPlaces. */
size_t find_place(const uint64_t *line, uint64_t hash, uint64_t *word) {
    for (size_t i = 0; i < kPlaces; i++) {
        *word = load(&line[i]);

        if (*word == 0 || is_of(*word, hash)) { return i; }
    }

    return kPlaces;
}

/* Returns the index of a place to be taken from another key, whose word is
 * *word. */
size_t find_victim(uint64_t *line, uint64_t hash, uint64_t *word) {
    size_t first = hash % kPlaces;
    size_t victim = kPlaces;

    for (size_t i = 0; i < kPlaces; i++) {
        size_t place = (first + i) % kPlaces;
        uint64_t seen = load(&line[place]);

        if (seen == kGone) {
            *word = seen;
            return place;
        }

        if (victim == kPlaces && (seen & kUsed) == 0) {
            victim = place;
            *word = seen;
        }
    }

    if (victim < kPlaces) { return victim; }

    for (size_t i = 0; i < kPlaces; i++) {
        uint64_t seen = load(&line[i]);

        if (seen != kGone) { exchange(&line[i], seen, seen & ~kUsed); }
    }

    *word = load(&line[first]);
    return first;
}

/* Takes the key away from its places after one, which two processes may have
 * given it at once. */
void take_away(uint64_t *line, uint64_t hash, size_t first) {
    for (size_t i = first; i < kPlaces; i++) {
        uint64_t seen = load(&line[i]);

        if (is_of(seen, hash)) { exchange(&line[i], seen, kGone); }
    }
}

} // namespace

LimitCache *LimitCache::init(void *memory, size_t bytes) {
    auto *cache = static_cast<LimitCache *>(memory);

    cache->lines_ = (bytes - sizeof(LimitCache)) / (kPlaces * sizeof(uint64_t));

    return cache;
}

/* Returns the first of the places where the key may be. */
uint64_t *LimitCache::line_of(uint64_t hash) const {
    uint64_t number = (hash >> 32) * lines_ >> 32;

    return reinterpret_cast<uint64_t *>(const_cast<LimitCache *>(this) + 1) + number * kPlaces;
}

uint64_t LimitCache::find(uint64_t hash) const {
    const uint64_t *line = line_of(hash);
    uint64_t word;

    if (find_place(line, hash, &word) == kPlaces || word == 0) { return kLimitUnset; }

    return limit_of(word) == kOff ? kUnlimited : limit_of(word);
}

void LimitCache::set(uint64_t hash, uint64_t limit) {
    uint64_t *line = line_of(hash);
    uint64_t word;
    size_t place = find_place(line, hash, &word);
    bool is_known = place < kPlaces && word != 0;

    if (limit == kLimitUnset) {
        if (is_known) { take_away(line, hash, place); }

        return;
    }

    uint64_t wanted = word_of(hash, limit == kUnlimited ? kOff : std::min(limit, kLimitMax));

    if (is_known && word == (wanted | kUsed)) { return; }

    for (unsigned i = 0; i < kTries; i++) {
        if (place == kPlaces) { place = find_victim(line, hash, &word); }

        if (exchange(&line[place], word, is_known ? wanted | kUsed : wanted)) {
            take_away(line, hash, place + 1);
            return;
        }

        place = find_place(line, hash, &word);
        is_known = place < kPlaces && word != 0;
    }
}

} // namespace limit_sliding
