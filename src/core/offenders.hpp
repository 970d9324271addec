/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/policy.hpp"

namespace limit_sliding {

constexpr auto kOffendersMax = 100;
constexpr auto kOffenderKeyBytes = 64; /* that are kept */
constexpr auto kOffenderSpanMs = 120000u;

/* A worker samples rejections beyond so many a ms, one of every so many. */
constexpr auto kRejectionsCounted = 32u;
constexpr auto kRejectionsSampled = 256u;

/* Which rejections a worker adds.  Zeroed at first. */
struct Sampler {
    uint64_t now_ms;
    uint32_t seen; /* in that ms */
    uint32_t skip; /* then so many, till the next sample */
    uint64_t rest; /* after that one, of those it stands for */
    uint64_t random;
    bool takes_all; /* samples nothing: each rejection has to be looked at */

    /* Returns for how many rejections this one is to be added, 0: not at all.
     * To be called for every rejection: each counts while there are few, in an
     * attack an unbiased sample. */
    uint32_t weight(uint64_t time_ms) {
        /* Most rejections end here when there are many of them. */
        if (skip > 0 && now_ms == time_ms && seen == kRejectionsCounted) {
            skip--;
            return 0;
        }

        return weigh(time_ms);
    }

private:
    uint32_t weigh(uint64_t time_ms);
};

struct Offender {
    uint64_t rejected; /* in the last one to two spans */
    uint64_t bytes;    /* of the key, of which only the first ones are kept */
    uint8_t key[kOffenderKeyBytes];
};

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
 * tells what belongs together, in whatever order its words are seen, which are
 * relaxed.  What does not is not shown, and written anew with the key's next
 * rejection.
 */
class Offenders {
public:
    /* The bytes of a table of so many keys. */
    static constexpr size_t bytes_for(size_t places) {
        return sizeof(Offenders) + places * (sizeof(Entry) + sizeof(Text));
    }

    /* Makes a table of zeroed memory of so many bytes. */
    void init(size_t places) { places_ = places; }

    /* What count() returns if the key's text is there. */
    static constexpr size_t kNamed = SIZE_MAX;

    /* Adds so many rejections of a key.  Unless its text is there, returns the
     * place for set_text(). */
    size_t count(uint64_t hash, uint32_t weight, uint64_t now_ms);

    /* Writes the text of the key that was counted there. */
    void set_text(size_t place, uint64_t hash, std::string_view key);

    /* Forgets a key. */
    void forget(uint64_t hash);

    /* Forgets all. */
    void clear();

    /* Writes them, the most rejected first; returns how many.  Any key with
     * more than 1/100 of all rejections is among them, with a count that is too
     * high by no more than the least count here. */
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

        uint64_t words[kWords]; /* check, length, bytes */

        size_t used() const; /* words; what follows them is not looked at */
        bool is_of(uint64_t name) const { return words[0] == check_of(name); }

        static Text make(uint64_t name, std::string_view key);
        Text read() const;
        void keep(const Text &wanted);
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
