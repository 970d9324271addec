/* Copyright (C) the limit_sliding authors */

#include "core/facts/offenders.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/base/atomics.hpp"
#include "core/base/hashes.hpp"

namespace limit_sliding {

namespace {

constexpr unsigned kCountBits = 40;
constexpr uint64_t kCountMask = (1ULL << kCountBits) - 1;

/* Returns the number of the present span, modulo 2^24. */
uint64_t span_of(uint64_t now_ms) { return now_ms / kOffenderSpanMs & (UINT64_MAX >> kCountBits); }

/* Returns the hash of a key as stored; never 0. */
uint64_t name_of(uint64_t hash) { return hash + (hash == 0); }

/* Returns the count in a word if the word is of `span`, of the span before, or of the span after,
 * which another worker's clock may have reached; else 0. */
uint64_t count_of(uint64_t word, uint64_t span) {
    return span + 1 - (word >> kCountBits) <= 2 ? word & kCountMask : 0;
}

template <class T>
void wipe_words(T *part) {
    auto *words = reinterpret_cast<uint64_t *>(part);
    for (size_t i = 0; i < sizeof(T) / sizeof(uint64_t); i++) {
        store(&words[i], 0);
    }
}

} // namespace

uint32_t Sampler::weigh(uint64_t time_ms) {
    if (now_ms != time_ms) {
        now_ms = time_ms;
        seen = 0;
        kept += skip;
        skip = 0;
    }

    if (seen < kRejectionsCounted) {
        seen++;
        return 1;
    }

    if (kept > 0) {
        skip = kept - 1;
        kept = 0;
        return 0;
    }

    if (takes_all) { return 1; }

    /* The last sample has chosen this rejection; there was none before the first one.  The next
     * sample is one of the next kRejectionsSampled rejections at random, so that no order of keys
     * evades the samples. */
    const uint32_t weight = random == 0 ? 0 : kRejectionsSampled;

    /* Knuth's generator; its high bits are the random ones */
    random = random * 6364136223846793005 + 1442695040888963407;

    const uint64_t place = random >> 32 & (kRejectionsSampled - 1);

    skip = static_cast<uint32_t>(rest + place);
    rest = kRejectionsSampled - 1 - place;
    return weight;
}

[[gnu::always_inline]] inline uint64_t Offenders::Entry::total(uint64_t span) const {
    return count_of(load(&counts[0]), span) + count_of(load(&counts[1]), span);
}

void Offenders::Entry::count(uint32_t weight, uint64_t span) {
    uint64_t *word = &counts[span % 2];
    uint64_t seen = load(word);
    for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
        uint64_t next = seen >> kCountBits == span ? seen + weight : span << kCountBits | weight;
        if (shared(word).compare_exchange_weak(seen, next)) { return; }
    }
}

size_t Offenders::Text::used() const {
    uint64_t kept = std::min<uint64_t>(words[1], kOffenderKeyBytes);
    return 2 + (kept + sizeof(uint64_t) - 1) / sizeof(uint64_t);
}

/* Returns the check word.  `name` depends on the zone's secret, so clients cannot forge a check. */
uint64_t Offenders::Text::check_of(uint64_t name) const {
    uint64_t check = name;
    size_t n = used();
    for (size_t i = 1; i < n; i++) {
        check = mixed(check, words[i]);
    }
    return check;
}

Offenders::Text Offenders::Text::read() const {
    Text copy;
    for (size_t i = 0; i < kWords; i++) {
        copy.words[i] = load(&words[i]);
    }
    return copy;
}

/* Returns the entry of this name, else the entry with the least count. */
Offenders::Entry *Offenders::choose(uint64_t name, uint64_t span) const {
    Entry *end = entries() + places_;
    Entry *least = entries();
    uint64_t least_total = UINT64_MAX;

    for (Entry *entry = entries(); entry != end; entry++) {
        if (load(&entry->hash) == name) { return entry; }
    }

    for (Entry *entry = entries(); entry != end; entry++) {
        uint64_t total = entry->total(span);

        if (total < least_total) {
            least = entry;
            least_total = total;
        }
    }

    return least;
}

void Offenders::wipe(size_t place) {
    wipe_words(&entries()[place]);
    wipe_words(&texts()[place]);
}

size_t Offenders::count(uint64_t hash, uint32_t weight, uint64_t now_ms) {
    uint64_t name = name_of(hash);
    uint64_t span = span_of(now_ms);

    for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
        Entry *entry = choose(name, span);
        uint64_t seen = load(&entry->hash);

        if (seen != name && !shared(&entry->hash).compare_exchange_strong(seen, name)) { continue; }

        entry->count(weight, span);

        auto place = static_cast<size_t>(entry - entries());
        return texts()[place].read().is_of(name) ? kNamed : place;
    }

    return kNamed;
}

void Offenders::set_text(size_t place, uint64_t hash, std::string_view key) {
    assert(place < places_);

    Text text = {};
    text.words[1] = key.size();
    std::memcpy(&text.words[2], key.data(), std::min<size_t>(key.size(), kOffenderKeyBytes));
    text.words[0] = text.check_of(name_of(hash));

    /* Writes only words that differ: another worker may have written the same text already. */
    uint64_t *words = texts()[place].words;
    size_t n = text.used();
    for (size_t i = 0; i < n; i++) {
        if (load(&words[i]) != text.words[i]) { store(&words[i], text.words[i]); }
    }
}

void Offenders::forget(uint64_t hash) {
    for (size_t i = 0; i < places_; i++) {
        if (load(&entries()[i].hash) == name_of(hash)) { wipe(i); }
    }
}

void Offenders::clear() {
    for (size_t i = 0; i < places_; i++) {
        wipe(i);
    }
}

size_t Offenders::read(uint64_t now_ms, Offender *offenders) const {
    uint64_t span = span_of(now_ms);
    uint64_t names[kOffendersMax];
    size_t n = 0;

    for (size_t i = 0; i < places_; i++) {
        uint64_t name = load(&entries()[i].hash);
        uint64_t rejected = entries()[i].total(span);
        Text text = texts()[i].read();

        if (name == 0 || rejected == 0 || !text.is_of(name)) { continue; }

        /* two workers may have added a key at the same time */
        auto same = static_cast<size_t>(std::find(names, names + n, name) - names);

        if (same < n) {
            offenders[same].rejected += rejected;
            continue;
        }

        names[n] = name;
        offenders[n].rejected = rejected;
        offenders[n].bytes = text.words[1];
        std::memcpy(offenders[n].key, &text.words[2], kOffenderKeyBytes);
        n++;
    }

    std::sort(offenders, offenders + n,
              [](const auto &a, const auto &b) { return a.rejected > b.rejected; });

    return n;
}

} // namespace limit_sliding
