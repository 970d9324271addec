/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_CORE_OFFENDERS_HPP
#define LIMIT_SLIDING_CORE_OFFENDERS_HPP

#include <cstddef>
#include <cstdint>

#include "core/stats.hpp"

namespace limit_sliding {

/*
 * The keys rejected most, by the space-saving algorithm: a key that is not
 * there takes the place of the one with the least count, and its count.
 *
 * An entry is its hash, and two counts of rejections, each with the number of
 * the span of time that it is of:
 *
 *     span 24 | count 40
 *
 * Whoever swaps the hash has the entry; counts are added to, by whomever, and
 * none is lost.  The key's text is written without a lock, by several at once,
 * and by some who die meanwhile: its check, over the hash and all of the text,
 * tells what belongs together.  What does not is not shown, and written anew
 * with the key's next rejection.
 */
struct TopEntry {
    uint64_t hash; /* 0: none */
    uint64_t counts[2];
};

struct TopText {
    static constexpr size_t kWords = 2 + kTopBytes / sizeof(uint64_t);

    uint64_t words[kWords]; /* check, length, bytes */
};

/* Entries, then texts. */
struct Offenders {
    uint64_t places;
    uint64_t unused;
    TopEntry entries[1];

    static size_t bytes_of(size_t places)
    {
        return offsetof(Offenders, entries)
               + places * (sizeof(TopEntry) + sizeof(TopText));
    }

    TopText *texts() { return reinterpret_cast<TopText *>(entries + places); }
};

} // namespace limit_sliding

#endif
