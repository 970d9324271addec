/* Copyright (C) the limit_sliding authors */

#include "core/facts/override_cache.hpp"

#include <cassert>

namespace limit_sliding {

namespace {

constexpr size_t kPlaces = 8;

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

    /* Clears `used`, unless another process has stored an override since `seen` was read. */
    void make_unused(const Place &seen) {
        uint64_t old = seen.check;
        const uint64_t next = old ^ (seen.is_used() ? kUsed : 0);
        shared(&check).compare_exchange_strong(old, next, std::memory_order_relaxed);
    }

    /* Removes the key.  The place must not look new, because places behind it may be in use. */
    void clear() {
        shared(&value).store(0, std::memory_order_relaxed);
        shared(&check).store(kUsed, std::memory_order_relaxed);
    }

    static constexpr uint64_t kUsed = 1;
};

} // namespace

struct OverrideCache::Set {
    Place places[kPlaces];

    /* Returns the key's place; else the first place that was never used; else nullptr.  Sets *seen
     * to the words of the returned place. */
    Place *find(uint64_t hash, Place *seen) {
        for (Place &place : places) {
            *seen = place.seen();
            if (seen->is_of(hash) || seen->is_new()) { return &place; }
        }
        return nullptr;
    }

    /* Returns the place for a new key: an empty one, else one without `used`.  If all places are
     * used, clears their flags. */
    Place *choose(uint64_t hash) {
        Place *choice = nullptr;

        for (size_t i = 0; i < kPlaces; i++) {
            Place *place = &places[(hash + i) % kPlaces];
            const Place seen = place->seen();

            if (seen.is_gone()) { return place; }

            if (choice == nullptr && !seen.is_used()) { choice = place; }
        }

        if (choice != nullptr) { return choice; }

        for (Place &place : places) {
            place.make_unused(place.seen());
        }

        return &places[hash % kPlaces];
    }

    /* Removes all copies of the key but `kept`.  Processes that store the key at the same time may
     * make several copies. */
    void remove_copies(uint64_t hash, const Place *kept) {
        for (Place &place : places) {
            if (&place != kept && place.seen().is_of(hash)) { place.clear(); }
        }
    }
};

OverrideCache *OverrideCache::init(void *memory, size_t bytes) {
    auto *cache = static_cast<OverrideCache *>(memory);
    assert(bytes >= kBytesMin);
    cache->sets_ = (bytes - sizeof(OverrideCache)) / sizeof(Set);
    return cache;
}

OverrideCache::Set &OverrideCache::set_of(uint64_t half) const {
    return reinterpret_cast<Set *>(const_cast<OverrideCache *>(this) + 1)[half * sets_ >> 32];
}

Override OverrideCache::find(uint64_t hash) const {
    Place seen;

    /* a new place has the value 0, which is no override */
    return set_of(hash >> 32).find(hash, &seen) != nullptr
                   || set_of(hash & UINT32_MAX).find(hash, &seen) != nullptr
               ? Override::from_code(seen.value)
               : Override{};
}

void OverrideCache::set(uint64_t hash, const Override &own) {
    Place seen;
    Set &first = set_of(hash >> 32);
    Set &second = set_of(hash & UINT32_MAX);
    Place *place = first.find(hash, &seen);
    if (place == nullptr) { place = second.find(hash, &seen); }

    const bool is_known = place != nullptr && !seen.is_new();
    if (!is_known && !own.is_set()) { return; }

    const uint64_t value = own.code();
    if (is_known && seen.value == value && seen.is_used()) { return; }

    if (own.is_set() && !has_overrides()) { store(&has_overrides_, 1); }
    if (own.window.is_given() && !has_windows()) { store(&has_windows_, 1); }

    if (!own.is_set()) {
        place = nullptr;
    } else {
        if (place == nullptr) { place = first.choose(hash); }

        place->store(hash, value, is_known);
    }

    first.remove_copies(hash, place);
    second.remove_copies(hash, place);
}

} // namespace limit_sliding
