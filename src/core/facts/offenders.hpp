/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/policy/policy.hpp"

namespace limit_sliding {

constexpr auto kOffendersMax = 100;
constexpr auto kOffenderKeyBytes = 64; /* longer keys are cut */
constexpr auto kOffenderSpanMs = 120000u;

/* Each worker counts kRejectionsCounted rejections a ms, and one of kRejectionsSampled beyond. */
constexpr auto kRejectionsCounted = 32u;
constexpr auto kRejectionsSampled = 256u;

/* Chooses the rejections that a worker counts.  Initially zeroed. */
struct Sampler {
    uint64_t now_ms;
    uint32_t seen; /* rejections in the present ms */
    uint32_t skip; /* rejections to skip in this ms until the next sample */
    uint32_t kept; /* rest of `skip` of an earlier ms, for rejections beyond kRejectionsCounted */
    uint64_t rest; /* rejections of the present sample after the chosen one */
    uint64_t random;
    bool takes_all; /* no sampling: each rejection is counted */

    /* Returns the weight of a rejection: 1, kRejectionsSampled for a sample, or 0 if it is
     * skipped.  Must be called for every rejection. */
    uint32_t weight(uint64_t time_ms) {
        /* In an attack most rejections end here. */
        if (now_ms == time_ms && skip > 0) {
            skip--;
            return 0;
        }

        return weigh(time_ms);
    }

private:
    uint32_t weigh(uint64_t time_ms);
};

struct Offender {
    uint64_t rejected; /* rejections within the last one to two spans */
    uint64_t bytes;    /* length of the whole key; `key` may have only the first bytes */
    uint8_t key[kOffenderKeyBytes];
};

/*
 * The keys with the most rejections, by the space-saving algorithm: a new key takes the place of
 * the key with the least count, and continues that count.
 *
 * An entry has a hash and two counts.  A count has the number of its span of time:
 *
 *     span 24 | count 40
 *
 * A key takes an entry by a compare-and-swap of the hash; additions to counts are atomic.  The
 * text of a key is written without a lock.  Several workers may write it at once, and a worker may
 * die in between.  So a check word covers the hash and the whole text, and readers skip a text
 * with a wrong check.  The next rejection of the key repairs such a text.
 */
class Offenders {
public:
    static constexpr size_t bytes_for(size_t places) {
        return sizeof(Offenders) + places * (sizeof(Entry) + sizeof(Text));
    }

    /* Makes a table in zeroed memory of bytes_for(places) bytes. */
    void init(size_t places) { places_ = places; }

    /* The result of count() for keys with a stored text. */
    static constexpr size_t kNamed = SIZE_MAX;

    /* Adds rejections of a key.  Returns kNamed, or the place for set_text() if the text is
     * missing. */
    size_t count(uint64_t hash, uint32_t weight, uint64_t now_ms);

    void set_text(size_t place, uint64_t hash, std::string_view key);

    void forget(uint64_t hash);

    void clear();

    /* Writes the keys in descending order of rejections, and returns their number.  The result
     * contains each key with more than 1/places of all rejections.  Counts may be too high by the
     * least count. */
    size_t read(uint64_t now_ms, Offender offenders[kOffendersMax]) const;

private:
    struct Entry {
        uint64_t hash; /* 0: none */
        uint64_t counts[2];

        uint64_t total(uint64_t span) const;
        void count(uint32_t weight, uint64_t span);
    };

    struct Text {
        static constexpr size_t kWords = 2 + kOffenderKeyBytes / sizeof(uint64_t);

        uint64_t words[kWords]; /* check, length in bytes, text */

        size_t used() const; /* words in use */
        bool is_of(uint64_t name) const { return words[0] == check_of(name); }
        Text read() const;
        uint64_t check_of(uint64_t name) const;
    };

    Entry *entries() const { return reinterpret_cast<Entry *>(const_cast<Offenders *>(this) + 1); }

    /* Texts follow entries. */
    Text *texts() const { return reinterpret_cast<Text *>(entries() + places_); }

    Entry *choose(uint64_t name, uint64_t span) const;
    void wipe(size_t place);

    alignas(16) uint64_t places_;
};

} // namespace limit_sliding
