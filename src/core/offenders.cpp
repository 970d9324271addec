/*
 * Copyright (C) the limit_sliding authors
 */

#include "core/offenders.hpp"

#include <algorithm>
#include <cstring>

#include "core/atomics.hpp"
#include "core/siphash.hpp"

namespace limit_sliding {

namespace {

constexpr unsigned kCountBits = 40;
constexpr uint64_t kCountMask = (1ULL << kCountBits) - 1;

/* The number of the present span, modulo 2^24. */
uint64_t span_of(uint64_t now_ms)
{
    return now_ms / kTopSpanMs & (UINT64_MAX >> kCountBits);
}

/* 0 is the hash of no entry. */
uint64_t name_of(uint64_t hash)
{
    return hash + (hash == 0);
}

/* Of the present span, the one before, or one that another's clock is in. */
uint64_t count_of(uint64_t word, uint64_t span)
{
    return span + 1 - (word >> kCountBits) <= 2 ? word & kCountMask : 0;
}

[[gnu::always_inline]] inline uint64_t total_of(const TopEntry &entry,
                                                uint64_t span)
{
    return count_of(load(&entry.counts[0]), span)
           + count_of(load(&entry.counts[1]), span);
}

void count(TopEntry *entry, uint32_t weight, uint64_t span)
{
    uint64_t *word = &entry->counts[span % 2];
    uint64_t seen = load(word);

    for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
        uint64_t next = seen >> kCountBits == span
                            ? seen + weight
                            : span << kCountBits | weight;

        if (shared(word).compare_exchange_weak(seen, next)) {
            return;
        }
    }
}

uint64_t check_of(uint64_t name, const TopText &text)
{
    return SipHash13(name, 0).hash(&text.words[1],
                                   sizeof(text) - sizeof(text.words[0]));
}

TopText make_text(uint64_t name, const void *key, size_t bytes)
{
    TopText text = {};

    text.words[1] = bytes;
    std::memcpy(&text.words[2], key, std::min<size_t>(bytes, kTopBytes));
    text.words[0] = check_of(name, text);

    return text;
}

TopText load_text(const TopText &text)
{
    TopText copy;

    for (size_t i = 0; i < TopText::kWords; i++) {
        copy.words[i] = load(&text.words[i]);
    }

    return copy;
}

/* Writes what is not there yet: a key's text is the same every time. */
void keep_text(TopText *text, const TopText &wanted)
{
    for (size_t i = 0; i < TopText::kWords; i++) {
        if (load(&text->words[i]) != wanted.words[i]) {
            shared(&text->words[i])
                .store(wanted.words[i], std::memory_order_relaxed);
        }
    }
}

/* An entry or a text. */
template <class T>
void wipe(T *part)
{
    auto *words = reinterpret_cast<uint64_t *>(part);

    for (size_t i = 0; i < sizeof(T) / sizeof(uint64_t); i++) {
        shared(&words[i]).store(0, std::memory_order_relaxed);
    }
}

/* The entry of that name, else the one with the least count. */
TopEntry *choose(Offenders *top, uint64_t name, uint64_t span)
{
    TopEntry *end = top->entries + top->places;
    TopEntry *least = top->entries;
    uint64_t least_total = UINT64_MAX;

    for (TopEntry *entry = top->entries; entry != end; entry++) {
        if (load(&entry->hash) == name) {
            return entry;
        }
    }

    for (TopEntry *entry = top->entries; entry != end; entry++) {
        uint64_t total = total_of(*entry, span);

        if (total < least_total) {
            least = entry;
            least_total = total;
        }
    }

    return least;
}

/* One of every so many, at random, so that no order of keys evades it. */
uint32_t take_sample(Sampler *sampler)
{
    uint32_t weight = sampler->random == 0 ? 0 : kTopSample;

    /* Knuth's generator, whose upper bits are good */
    sampler->random
        = sampler->random * 6364136223846793005 + 1442695040888963407;

    uint64_t place = sampler->random >> 32 & (kTopSample - 1);

    sampler->skip = static_cast<uint32_t>(sampler->rest + place);
    sampler->rest = kTopSample - 1 - place;

    return weight;
}

} // namespace

uint32_t top_weight(Sampler *sampler, uint64_t now_ms)
{
    if (sampler->now_ms != now_ms) {
        sampler->now_ms = now_ms;
        sampler->seen = 0;
    }

    if (sampler->seen < kTopAll) {
        sampler->seen++;
        return 1;
    }

    if (sampler->skip > 0) {
        sampler->skip--;
        return 0;
    }

    return take_sample(sampler);
}

void top_add(Offenders *top, uint64_t hash, const void *key, size_t bytes,
             uint32_t weight, uint64_t now_ms)
{
    uint64_t name = name_of(hash);
    uint64_t span = span_of(now_ms);

    for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
        TopEntry *entry = choose(top, name, span);
        uint64_t seen = load(&entry->hash);

        if (seen != name
            && !shared(&entry->hash).compare_exchange_strong(seen, name)) {
            continue;
        }

        count(entry, weight, span);
        keep_text(&top->texts()[entry - top->entries],
                  make_text(name, key, bytes));
        return;
    }
}

void top_forget(Offenders *top, uint64_t hash)
{
    for (size_t i = 0; i < top->places; i++) {
        if (load(&top->entries[i].hash) == name_of(hash)) {
            wipe(&top->entries[i]);
            wipe(&top->texts()[i]);
        }
    }
}

void top_clear(Offenders *top)
{
    for (size_t i = 0; i < top->places; i++) {
        wipe(&top->entries[i]);
        wipe(&top->texts()[i]);
    }
}

size_t top_read(const Offenders *shared_top, uint64_t now_ms,
                Offender *offenders)
{
    auto *top = const_cast<Offenders *>(shared_top);
    uint64_t span = span_of(now_ms);
    uint64_t names[kTopKeys];
    size_t n = 0;

    for (size_t i = 0; i < top->places; i++) {
        uint64_t name = load(&top->entries[i].hash);
        uint64_t rejected = total_of(top->entries[i], span);
        TopText text = load_text(top->texts()[i]);

        if (name == 0 || rejected == 0
            || text.words[0] != check_of(name, text)) {
            continue;
        }

        /* two may have added a key at once */
        auto same
            = static_cast<size_t>(std::find(names, names + n, name) - names);

        if (same < n) {
            offenders[same].rejected += rejected;
            continue;
        }

        names[n] = name;
        offenders[n].rejected = rejected;
        offenders[n].bytes = text.words[1];
        std::memcpy(offenders[n].key, &text.words[2], kTopBytes);
        n++;
    }

    std::sort(offenders, offenders + n, [](const auto &a, const auto &b) {
        return a.rejected > b.rejected;
    });

    return n;
}

} // namespace limit_sliding
