/*
 * Copyright (C) the limit_sliding authors
 */

#include <algorithm>
#include <cstdint>

#include "core/atomics.hpp"
#include "core/stats.hpp"

namespace limit_sliding {

/*
 * Every entry is one word, so a process may die at any moment:
 *
 *     fingerprint of the key 41 | limit 23
 *
 * 0: never used.  An entry of a limit that was taken away keeps its place, for
 * the next one.  Places are probed one after the other, up to so many: that is
 * what a request costs at most.
 */

namespace {

constexpr uint64_t kProbes = 32;

constexpr unsigned kLimitBits = 23;
constexpr uint64_t kLimitMask = (1u << kLimitBits) - 1;
constexpr uint64_t kOff = kLimitMask;
constexpr uint64_t kGone = 1u << (kLimitBits - 1);

static_assert(kLimitMax < kGone, "more than any limit");

uint64_t word_of(uint64_t hash, uint64_t limit)
{
    return hash << kLimitBits | limit;
}

bool is_of(uint64_t word, uint64_t hash)
{
    return word != 0 && (word ^ word_of(hash, 0)) <= kLimitMask;
}

uint64_t limit_of(uint64_t word)
{
    return word & kLimitMask;
}

/* Of a limit that was taken away, whatever key's. */
bool is_gone(uint64_t word)
{
    return limit_of(word) == kGone;
}

/*
 * Calls visit(&word) for the hash's places, until it returns true or one was
 * never used.
 */
template <class Own, class Visit>
void search(Own *own, uint64_t hash, const Visit &visit)
{
    uint64_t first = (hash >> 32) * own->places >> 32;

    for (uint64_t i = 0; i < std::min(kProbes, own->places); i++) {
        auto *word = &own->words[(first + i) % own->places];

        if (visit(word) || load(word) == 0) {
            return;
        }
    }
}

void take_away(Overrides *own, uint64_t hash)
{
    search(own, hash, [&](uint64_t *word) {
        uint64_t seen = load(word);

        if (is_of(seen, hash) && !is_gone(seen)
            && shared(word).compare_exchange_strong(seen,
                                                    word_of(hash, kGone))) {
            add(&own->held, UINT64_MAX);
        }

        return false;
    });
}

} // namespace

uint32_t own_find(const Overrides *own, uint64_t hash)
{
    uint64_t found = 0;

    search(own, hash, [&](const uint64_t *word) {
        uint64_t seen = load(word);

        if (!is_of(seen, hash) || is_gone(seen)) {
            return false;
        }

        found = limit_of(seen);
        return true;
    });

    return found == kOff ? kOwnOff : static_cast<uint32_t>(found);
}

int own_set(Overrides *own, uint64_t hash, uint32_t limit)
{
    if (limit == kOwnNone) {
        take_away(own, hash);
        return 1;
    }

    uint64_t wanted = word_of(hash, limit == kOwnOff ? kOff : limit);

    /* whoever finds an entry has to find `held` set; who dies leaves it so */
    add(&own->held, 1);

    for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
        uint64_t *place = nullptr;
        uint64_t seen = 0;
        bool is_new = true;

        search(own, hash, [&](uint64_t *word) {
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

        if (place == nullptr) {
            break;
        }

        if (shared(place).compare_exchange_strong(seen, wanted)) {
            if (!is_new) {
                add(&own->held, UINT64_MAX);
            }

            return 1;
        }
    }

    add(&own->held, UINT64_MAX);

    return 0;
}

} // namespace limit_sliding
