/* Copyright (C) the limit_sliding authors */

#include "core/overrides.hpp"

#include <algorithm>

#include "core/atomics.hpp"

namespace limit_sliding {

namespace {

constexpr uint64_t kProbes = 32;

constexpr unsigned kLimitBits = 30;
constexpr uint64_t kLimitMask = (1u << kLimitBits) - 1;
constexpr uint64_t kOff = kLimitMask;
constexpr uint64_t kGone = kOff - 1;

static_assert(kLimitMax < kGone, "more than any limit");

uint64_t word_of(uint64_t hash, uint64_t limit) { return hash << kLimitBits | limit; }

bool is_of(uint64_t word, uint64_t hash) {
    return word != 0 && (word ^ word_of(hash, 0)) <= kLimitMask;
}

uint64_t limit_of(uint64_t word) { return word & kLimitMask; }

/* True if the limit was taken away, whatever key's it was. */
bool is_gone(uint64_t word) { return limit_of(word) == kGone; }

} // namespace

/* Calls visit(&word) for the hash's places, until it returns true or one was
 * never used. */
template <class Visit>
void Overrides::search(uint64_t hash, const Visit &visit) const {
    uint64_t first = (hash >> 32) * places_ >> 32;

    for (uint64_t i = 0; i < std::min(kProbes, places_); i++) {
        uint64_t *word = &words()[(first + i) % places_];

        if (visit(word) || load(word) == 0) { return; }
    }
}

void Overrides::remove(uint64_t hash) {
    search(hash, [&](uint64_t *word) {
        uint64_t seen = load(word);

        if (is_of(seen, hash) && !is_gone(seen)
            && shared(word).compare_exchange_strong(seen, word_of(hash, kGone))) {
            add(&count_, UINT64_MAX);
        }

        return false;
    });
}

uint64_t Overrides::find(uint64_t hash) const {
    uint64_t found = kLimitUnset;

    search(hash, [&](const uint64_t *word) {
        uint64_t seen = load(word);

        if (!is_of(seen, hash) || is_gone(seen)) { return false; }

        found = limit_of(seen);
        return true;
    });

    return found == kOff ? kUnlimited : found;
}

bool Overrides::set(uint64_t hash, uint64_t limit) {
    if (limit == kLimitUnset) {
        remove(hash);
        return true;
    }

    uint64_t wanted = word_of(hash, limit == kUnlimited ? kOff : limit);

    /* whoever finds an entry has to find it counted: if we die it stays so */
    add(&count_, 1);

    for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
        uint64_t *place = nullptr;
        uint64_t seen = 0;
        bool is_new = true;

        search(hash, [&](uint64_t *word) {
            uint64_t other = load(word);

            if (is_of(other, hash) && !is_gone(other)) {
                place = word;
                seen = other;
                is_new = false;
                return true;
            }

            if (place == nullptr && (other == 0 || is_gone(other))) {
                place = word;
                seen = other;
            }

            return false;
        });

        if (place == nullptr) { break; }

        if (shared(place).compare_exchange_strong(seen, wanted)) {
            if (!is_new) { add(&count_, UINT64_MAX); }

            return true;
        }
    }

    add(&count_, UINT64_MAX);

    return false;
}

} // namespace limit_sliding
