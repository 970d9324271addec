/* Copyright (C) the limit_sliding authors */

#include "core/facts/overrides.hpp"

#include <algorithm>
#include <cassert>

namespace limit_sliding {

namespace {

constexpr uint32_t kNoEnd32 = UINT32_MAX;

static_assert(Atomic<uint32_t>::is_always_lock_free && Atomic<uint64_t>::is_always_lock_free,
              "processes share them");

uint32_t until_of(uint64_t until_s) {
    return static_cast<uint32_t>(std::min<uint64_t>(until_s, kNoEnd32));
}

bool is_prime(uint64_t n) {
    for (uint64_t i = 2; i * i <= n; i++) {
        if (n % i == 0) { return false; }
    }
    return n > 1;
}

/* Returns the number of lines for this many keys, always more than `least`.  Including the head
 * and the bitmap, a large table takes at most 24 bytes a key. */
uint64_t lines_for(size_t keys, uint64_t least) {
    uint64_t lines = keys < 1024 ? std::max<uint64_t>(keys / 2 + 2, least + 8)
                                 : keys * 3 / 8 - keys / 65536 - 2;
    while (!is_prime(lines)) {
        lines--;
    }
    return lines;
}

} // namespace

size_t Overrides::bytes_for(size_t keys) {
    const uint64_t lines = lines_for(keys, kSteps);
    return sizeof(Overrides) + lines * sizeof(Line)
           + (lines / kGroup / 64 + 1) * sizeof(Atomic<uint64_t>);
}

void Overrides::init(size_t keys) {
    static_assert(sizeof(Overrides) == sizeof(Line), "lines are aligned");
    max_ = keys;
    bytes_ = lines_for(keys, kSteps) * sizeof(Line);
    assert(lines_count() > kSteps && lines_count() * kPlaces > max_);
}

bool Overrides::Place::is_taken() const {
    return line->tag[i].load(std::memory_order_relaxed) != 0;
}

bool Overrides::Place::has_ended(uint64_t now_s) const {
    const auto until_s = line->until_s[i].load(std::memory_order_relaxed);
    return until_s != kNoEnd32 && until_s <= now_s;
}

/* Reads the entry.  If the limit or the end belongs to another key, a relaxed load of the tag
 * after this function sees that the tag has changed. */
Overrides::Entry Overrides::Place::entry() const {
    const auto until_s = line->until_s[i].load(std::memory_order_acquire);
    return {Override::from_code(line->rule[i].load(std::memory_order_acquire)),
            until_s == kNoEnd32 ? kNoEnd : until_s, line->at[i].load(std::memory_order_relaxed)};
}

/* Fills a free place.  The order of the stores serves readers that found the former tag here.  If
 * the place had another key, a reader that reads the new limit or the new end also sees that the
 * former tag is gone.  If the place had an expired override of the same key, a reader that reads
 * the new end also reads the new limit. */
void Overrides::Place::write(uint32_t tag, const Entry &entry) const {
    line->at[i].store(static_cast<uint32_t>(entry.at), std::memory_order_relaxed);
    line->rule[i].store(entry.own.code(), std::memory_order_release);
    line->until_s[i].store(until_of(entry.until_s), std::memory_order_release);
    line->tag[i].store(tag, std::memory_order_release);
}

/* Changes an override that has not expired.  If the end changes, the override has no end while the
 * limit is stored.  The limit and the new end are stored with release: a reader that has read the
 * new limit cannot read the former end afterwards, and a reader that has read the new end reads
 * the new limit. */
void Overrides::Place::change(const Entry &entry) const {
    const auto until_s = until_of(entry.until_s);
    if (line->until_s[i].load(std::memory_order_relaxed) != until_s) {
        line->until_s[i].store(kNoEnd32, std::memory_order_relaxed);
    }
    line->rule[i].store(entry.own.code(), std::memory_order_release);
    line->until_s[i].store(until_s, std::memory_order_release);
    line->at[i].store(static_cast<uint32_t>(entry.at), std::memory_order_relaxed);
}

/* Returns a bit for each place of the line with this tag, and a fourth bit if no key has passed
 * the line.  The result is a hint, because the order of the loads is not defined. */
inline unsigned Overrides::look_at(const Line *line, uint32_t tag) {
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__) && !defined(LIMIT_SLIDING_ATOMICS)
    typedef int32_t Words __attribute__((vector_size(16)));
    typedef float Floats __attribute__((vector_size(16)));
    static_assert(offsetof(Line, passed) == 12 && kPlaces == 3, "they are one vector");

    const Words words = __builtin_ia32_pshufd(Words{static_cast<int32_t>(tag)}, 0x40);
    const Words seen = *reinterpret_cast<const volatile Words *>(line);
    const auto equal = reinterpret_cast<Floats>(seen == words);
    return static_cast<unsigned>(__builtin_ia32_movmskps(equal));
#else
    const auto is_tag
        = [=](unsigned i) { return line->tag[i].load(std::memory_order_relaxed) == tag; };
    const bool is_last = line->passed.load(std::memory_order_relaxed) == 0;
    return is_tag(0) | is_tag(1) << 1 | is_tag(2) << 2 | is_last << 3;
#endif
}

/* Each request to a zone with overrides calls this function.  It reads one or two lines for most
 * keys. */
Overrides::Place Overrides::find_place(uint64_t hash) const {
    const auto tag = tag_of(hash);
    auto *at = line_at(Path::first_of(hash, bytes_));
    unsigned seen = look_at(at, tag);

    if (seen == 0) {
        Path path(hash, bytes_);

        do {
            if (!path.next()) { return {}; }

            at = line(path);
            seen = look_at(at, tag);
        } while (seen == 0);
    }

    if ((seen & ((1 << kPlaces) - 1)) == 0) { return {}; }

    const auto i = static_cast<unsigned>(__builtin_ctz(seen));
    return at->tag[i].load(std::memory_order_acquire) == tag ? Place{at, i} : Place{};
}

bool Overrides::read(const Place &place, uint64_t hash, Entry *entry) {
    *entry = place.entry();
    return place.line->tag[place.i].load(std::memory_order_relaxed) == tag_of(hash);
}

bool Overrides::find(uint64_t hash, Entry *entry) const {
    const auto place = find_place(hash);
    return place.is_there() && read(place, hash, entry) && entry->own.is_set();
}

bool Overrides::set(uint64_t hash, const Entry &entry, uint64_t now_s) {
    assert(entry.at <= UINT32_MAX);

    const auto place = find_place(hash);

    if (!place.is_there()) {
        if (!entry.own.is_set()) { return true; }

        if (count() >= max_) { return false; }

        return insert(hash, entry).is_there();
    }

    if (!entry.own.is_set()) {
        remove(hash, place);
    } else if (place.has_ended(now_s)) {
        place.clear();
        place.write(tag_of(hash), entry);
    } else {
        place.change(entry);
    }

    return true;
}

/* Adds a key.  A free place exists unless memory was damaged: there are more places than keys. */
Overrides::Place Overrides::insert(uint64_t hash, const Entry &entry) {
    /* A reader that finds a key must find a count other than 0. */
    add_count(1);

    Path path(hash, bytes_);

    do {
        auto *at = line(path);

        for (unsigned i = 0; i < kPlaces; i++) {
            if (at->tag[i].load(std::memory_order_relaxed) == 0) {
                const Place place = {at, i};
                const uint64_t group = path.line() / kGroup;
                auto &word = word_of(group);
                word.store(word.load(std::memory_order_relaxed) | bit_of(group),
                           std::memory_order_relaxed);
                place.write(tag_of(hash), entry);
                return place;
            }
        }

        at->passed.store(at->passed.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    } while (path.next());

    return {};
}

void Overrides::remove(uint64_t hash, const Place &place) {
    place.clear();
    for (Path path(hash, bytes_); line(path) != place.line; path.next()) {
        auto &passed = line(path)->passed;
        const auto n = passed.load(std::memory_order_relaxed);
        passed.store(n - (n != 0), std::memory_order_relaxed);
    }
    add_count(UINT64_MAX);
}

template <class Keep>
void Overrides::keep_if(const Keep &keep) {
    uint64_t kept = 0;

    for (uint64_t n = 0; (n = touched_from(n)) < lines_count(); n++) {
        for (unsigned i = 0; i < kPlaces; i++) {
            const Place place = {&lines()[n], i};
            if (!place.is_taken()) { continue; }

            if (keep(place)) {
                kept++;
            } else {
                place.clear();
            }
        }
    }

    count_.store(kept, std::memory_order_relaxed);
}

void Overrides::remove_ended(uint64_t now_s) {
    keep_if([=](const Place &place) { return !place.has_ended(now_s); });
}

uint64_t Overrides::touched_from(uint64_t n) const {
    while (n < lines_count()) {
        const uint64_t group = n / kGroup;
        const uint64_t bits = word_of(group).load(std::memory_order_relaxed) >> group % 64;
        if ((bits & 1) != 0) { return n; }
        n = bits != 0 ? (group + static_cast<unsigned>(__builtin_ctzll(bits))) * kGroup
                      : (group / 64 + 1) * 64 * kGroup;
    }
    return lines_count();
}

bool Overrides::next(uint64_t *place, uint64_t *lines_left, Entry *entry, uint32_t *tag) const {
    for (*place = std::min(*place, lines_count() * kPlaces);;) {
        if (*place % kPlaces == 0) {
            *place = touched_from(*place / kPlaces) * kPlaces;
            if (*place == lines_count() * kPlaces || *lines_left == 0) { return false; }

            --*lines_left;
        }

        const Place at = {&lines()[*place / kPlaces], static_cast<unsigned>(*place % kPlaces)};
        const auto &word = at.line->tag[at.i];

        ++*place;
        *tag = word.load(std::memory_order_acquire);
        if (*tag == 0) { continue; }

        *entry = at.entry();
        if (word.load(std::memory_order_relaxed) == *tag) { return true; }
    }
}

uint64_t Overrides::place_after(uint64_t hash) const {
    const auto place = find_place(hash);
    if (!place.is_there()) { return Path(hash, bytes_).line() * kPlaces; }
    return static_cast<uint64_t>(place.line - lines()) * kPlaces + place.i + 1;
}

void OverridesLoad::mark(uint64_t hash, uint64_t at) {
    auto place = table_.find_place(hash);

    if (!place.is_there()) {
        if (table_.count() >= table_.max_) { return; }

        /* the end 0 lets the key look expired until set() is called */
        place = table_.insert(hash, {{}, 0, at});
        if (!place.is_there()) { return; }
    }

    place.line->at[place.i].store(static_cast<uint32_t>(at), std::memory_order_relaxed);
    marks_of(place) |= kMarked << place.i;
}

/* Removes the keys without this mark. */
void OverridesLoad::keep_only(uint8_t mark) {
    table_.keep_if([&](const Place &place) { return (marks_of(place) & mark << place.i) != 0; });
}

void OverridesLoad::remove_unmarked() { keep_only(kMarked); }

/* Makes room by removing the keys that have no limit yet; set() adds them again when their line
 * comes.  Returns false if there were none. */
bool OverridesLoad::remove_waiting() {
    const auto before = table_.count();
    table_.keep_if([](const Place &place) { return place.entry().own.is_set(); });
    return table_.count() < before;
}

bool OverridesLoad::set(uint64_t hash, const Overrides::Entry &entry, uint64_t now_s) {
    const bool is_set = entry.own.is_set() && entry.until_s > now_s;
    auto place = table_.find_place(hash);

    if (!place.is_there()) {
        if (!is_set) { return true; }

        if (table_.count() >= table_.max_ && !remove_waiting()) { return false; }

        place = table_.insert(hash, entry);
        if (!place.is_there()) { return false; }
    } else if (place.line->at[place.i].load(std::memory_order_relaxed) > entry.at) {
        return true;
    } else if (is_set) {
        table_.set(hash, entry, now_s);
    } else {
        table_.remove(hash, place);
    }

    const auto bit = static_cast<uint8_t>(kSet << place.i);
    uint8_t &marks = marks_of(place);
    if (((marks & bit) != 0) != is_set) {
        for (Path path(hash, table_.bytes_); table_.line(path) != place.line; path.next()) {
            passed_[path.line()] += is_set ? 1 : UINT32_MAX;
        }
        marks ^= bit;
    }

    return true;
}

/* Removes the keys that were not set, and stores the final Line::passed of all lines. */
void OverridesLoad::end() {
    keep_only(kSet);

    for (uint64_t n = 0; (n = table_.touched_from(n)) < table_.lines_count();) {
        const uint64_t group = n / Overrides::kGroup;
        const uint64_t end = std::min((group + 1) * Overrides::kGroup, table_.lines_count());
        uint32_t used = 0;

        for (; n < end; n++) {
            table_.lines()[n].passed.store(passed_[n], std::memory_order_relaxed);
            used |= passed_[n] | marks_[n];
        }

        if (used != 0) { continue; }

        /* no key is in the group, and none has passed its lines, so walks skip the group */
        auto &word = table_.word_of(group);
        word.store(word.load(std::memory_order_relaxed) & ~Overrides::bit_of(group),
                   std::memory_order_relaxed);
    }
}

} // namespace limit_sliding
