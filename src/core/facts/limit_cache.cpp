/* Copyright (C) the limit_sliding authors */

#include "core/facts/limit_cache.hpp"

#include <algorithm>
#include <cassert>

namespace limit_sliding {

namespace {

constexpr size_t kPlaces = 8;
constexpr unsigned kLimitBits = 32;

/* Codes of limits that are no numbers.  The code 0 stands for no limit. */
constexpr uint64_t kOff = UINT32_MAX;
constexpr uint64_t kZero = UINT32_MAX - 1;

static_assert(kLimitMax < kZero, "more than any limit");

uint64_t value_of(const Override &own) {
    const uint64_t limit = own.is_unlimited() ? kOff
                           : own.is_blocked() ? kZero
                                              : std::min(own.limit, kLimitMax);
    return uint64_t{own.window.code()} << kLimitBits | limit;
}

Override limit_of(uint64_t value) {
    const uint64_t limit = value & UINT32_MAX;
    return {limit == kOff    ? kUnlimited
            : limit == kZero ? kBlocked
                             : limit,
            Window::from_code(static_cast<uint32_t>(value >> kLimitBits))};
}

struct Place {
    uint64_t value;
    uint64_t check;

    /* Returns a copy of both words, read one after the other. */
    Place seen() const { return {load(&value), load(&check)}; }

    bool is_new() const { return value == 0 && check == 0; }
    bool is_gone() const { return value == 0; }
    bool is_used() const { return ((value ^ check) & kUsed) != 0; }

    bool is_of(uint64_t hash) const {
        return value != 0 && (value ^ check) >> 1 == (hash << 1) >> 1;
    }

    void store(uint64_t hash, uint64_t own, bool used) {
        shared(&value).store(own, std::memory_order_relaxed);
        shared(&check).store(own ^ (hash << 1 | uint64_t{used}), std::memory_order_relaxed);
    }

    /* Clears `used`.  Fails if another process has stored meanwhile: then the place is used. */
    void make_unused(const Place &seen) {
        uint64_t old = seen.check;
        const uint64_t next = old ^ (seen.is_used() ? kUsed : 0);
        shared(&check).compare_exchange_strong(old, next, std::memory_order_relaxed);
    }

    /* Removes the key.  The place must not look new, because places behind it may be in use. */
    void take_away() {
        shared(&value).store(0, std::memory_order_relaxed);
        shared(&check).store(kUsed, std::memory_order_relaxed);
    }

    static constexpr uint64_t kUsed = 1;
};

} // namespace

struct LimitCache::Set {
    Place places[kPlaces];

    /* Returns the index of the key's place, or of the first new one, or kPlaces. */
    size_t find(uint64_t hash, Place *seen) const {
        for (size_t i = 0; i < kPlaces; i++) {
            *seen = places[i].seen();
            if (seen->is_of(hash) || seen->is_new()) { return i; }
        }
        return kPlaces;
    }

    /* Returns the index of the place to evict. */
    size_t choose_slot(uint64_t hash) {
        const size_t first = hash % kPlaces;
        size_t choice = kPlaces;

        for (size_t i = 0; i < kPlaces; i++) {
            const size_t place = (first + i) % kPlaces;
            const Place seen = places[place].seen();

            if (seen.is_gone()) { return place; }

            if (choice == kPlaces && !seen.is_used()) { choice = place; }
        }

        if (choice < kPlaces) { return choice; }

        for (Place &place : places) {
            place.make_unused(place.seen());
        }

        return first;
    }

    /* Removes further copies of the key, which another process may have stored at the same time. */
    void take_away(uint64_t hash, size_t first) {
        for (size_t i = first; i < kPlaces; i++) {
            if (places[i].seen().is_of(hash)) { places[i].take_away(); }
        }
    }
};

LimitCache *LimitCache::init(void *memory, size_t bytes) {
    auto *cache = static_cast<LimitCache *>(memory);
    assert(bytes >= kBytesMin);
    cache->sets_ = (bytes - sizeof(LimitCache)) / sizeof(Set);
    return cache;
}

LimitCache::Set &LimitCache::set_of(uint64_t hash, unsigned choice) const {
    const uint64_t half = choice == 0 ? hash >> 32 : hash & UINT32_MAX;
    return reinterpret_cast<Set *>(const_cast<LimitCache *>(this) + 1)[half * sets_ >> 32];
}

Override LimitCache::find(uint64_t hash) const {
    Place seen;

    /* a new place has the value 0, which is no limit */
    if (set_of(hash, 0).find(hash, &seen) < kPlaces) { return limit_of(seen.value); }

    if (set_of(hash, 1).find(hash, &seen) < kPlaces) { return limit_of(seen.value); }

    return {};
}

void LimitCache::set(uint64_t hash, const Override &own) {
    Set &first = set_of(hash, 0);
    Set &second = set_of(hash, 1);
    Set *set = &first;
    Place seen;
    size_t place = first.find(hash, &seen);

    if (place == kPlaces) {
        place = second.find(hash, &seen);
        if (place < kPlaces) { set = &second; }
    }

    const bool is_known = place < kPlaces && !seen.is_new();

    if (!own.is_set()) {
        if (is_known) {
            first.take_away(hash, 0);
            second.take_away(hash, 0);
        }

        return;
    }

    const uint64_t value = value_of(own);

    if (is_known && seen.value == value && seen.is_used()) { return; }

    if (own.window.is_given() && !has_windows()) {
        shared(&has_windows_).store(1, std::memory_order_relaxed);
    }

    if (place == kPlaces) { place = first.choose_slot(hash); }

    set->places[place].store(hash, value, is_known);
    set->take_away(hash, place + 1);
}

} // namespace limit_sliding
