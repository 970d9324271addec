/* Copyright (C) the limit_sliding authors */

#include "core/own_limits.hpp"

#include <algorithm>

namespace limit_sliding {

namespace {

constexpr uint32_t kOff = UINT32_MAX;
constexpr uint32_t kZero = UINT32_MAX - 1;
constexpr uint32_t kNoEnd32 = UINT32_MAX;

static_assert(kLimitMax < kZero, "more than any limit");
static_assert(Atomic<uint32_t>::is_always_lock_free && Atomic<uint64_t>::is_always_lock_free,
              "processes share them");

uint64_t rule_of(const OwnLimit &own) {
    const uint32_t limit = own.is_unlimited() ? kOff
                           : own.is_blocked() ? kZero
                                              : static_cast<uint32_t>(own.limit);
    return static_cast<uint64_t>(own.window.code()) << 32 | limit;
}

OwnLimit own_limit_of(uint64_t rule) {
    const auto limit = static_cast<uint32_t>(rule);
    return {limit == kOff    ? kUnlimited
            : limit == kZero ? kBlocked
                             : limit,
            Window::from_code(static_cast<uint32_t>(rule >> 32))};
}

uint32_t until_of(uint64_t until_s) {
    return static_cast<uint32_t>(std::min<uint64_t>(until_s, kNoEnd32));
}

bool is_prime(uint64_t n) {
    for (uint64_t i = 2; i * i <= n; i++) {
        if (n % i == 0) { return false; }
    }

    return n > 1;
}

/* Returns how many lines there are for so many keys: with the head, no more than
 * 24 bytes a key, but for few keys; and always more than `least`. */
uint64_t lines_for(size_t keys, uint64_t least) {
    uint64_t lines = keys < 1024 ? std::max<uint64_t>(keys / 2 + 2, least + 8) : keys * 3 / 8 - 1;

    while (!is_prime(lines)) {
        lines--;
    }

    return lines;
}

} // namespace

size_t OwnLimits::bytes_for(size_t keys) {
    return sizeof(OwnLimits) + lines_for(keys, kSteps) * sizeof(Line);
}

void OwnLimits::init(size_t keys) {
    static_assert(sizeof(OwnLimits) == sizeof(Line), "lines are aligned");

    max_ = keys;
    bytes_ = lines_for(keys, kSteps) * sizeof(Line);
}

bool OwnLimits::Place::is_taken() const {
    return line->tag[i].load(std::memory_order_relaxed) != 0;
}

bool OwnLimits::Place::has_ended(uint64_t now_s) const {
    const auto until_s = line->until_s[i].load(std::memory_order_relaxed);
    return until_s != kNoEnd32 && until_s <= now_s;
}

/* Whoever reads the tag after this, relaxed, finds it gone if the limit or its end is
 * another key's. */
OwnLimits::Entry OwnLimits::Place::entry() const {
    const auto until_s = line->until_s[i].load(std::memory_order_acquire);
    return {own_limit_of(line->rule[i].load(std::memory_order_acquire)),
            until_s == kNoEnd32 ? kNoEnd : until_s, line->at[i].load(std::memory_order_relaxed)};
}

/* Gives the place, which is free, to a key.  The stores are such that a reader who
 * has found the former key there, and then reads its limit or its end, finds the tag gone;
 * and if the key is the same, whose limit has ended, a new end tells that the limit is
 * new. */
void OwnLimits::Place::write(uint32_t tag, const Entry &entry) const {
    line->at[i].store(static_cast<uint32_t>(entry.at), std::memory_order_relaxed);
    line->rule[i].store(rule_of(entry.own), std::memory_order_release);
    line->until_s[i].store(until_of(entry.until_s), std::memory_order_release);
    line->tag[i].store(tag, std::memory_order_release);
}

/* Changes the limit of a key that has not ended.  In between, either of the two
 * limits is seen, without an end.  Each store but the first one is a release: who has seen
 * the new limit does not see the former end again, nor the new end with the former
 * limit. */
void OwnLimits::Place::change(const Entry &entry) const {
    const auto until_s = until_of(entry.until_s);

    if (line->until_s[i].load(std::memory_order_relaxed) != until_s) {
        line->until_s[i].store(kNoEnd32, std::memory_order_relaxed);
    }

    line->rule[i].store(rule_of(entry.own), std::memory_order_release);
    line->until_s[i].store(until_s, std::memory_order_release);
    line->at[i].store(static_cast<uint32_t>(entry.at), std::memory_order_relaxed);
}

/* Returns a bit for each place of a line that has the tag, and one after these if nobody
 * has passed the line.  This is a hint: the order in which the words are read is not
 * known. */
inline unsigned OwnLimits::look_at(const Line *line, uint32_t tag) {
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

/* Every request comes here whose zone has own limits.  Mostly, one or two lines tell
 * that its key has none. */
OwnLimits::Place OwnLimits::find_place(uint64_t hash) const {
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

bool OwnLimits::find(uint64_t hash, Entry *entry) const {
    const auto place = find_place(hash);
    if (!place.is_there()) { return false; }

    *entry = place.entry();
    return place.line->tag[place.i].load(std::memory_order_relaxed) == tag_of(hash)
           && entry->own.is_set();
}

bool OwnLimits::read(const Place &place, uint64_t hash, uint64_t now_s, OwnLimit *own) const {
    const auto entry = place.entry();
    if (place.line->tag[place.i].load(std::memory_order_relaxed) != tag_of(hash)
        || entry.until_s <= now_s) {
        return false;
    }

    *own = entry.own;
    return true;
}

bool OwnLimits::set(uint64_t hash, const Entry &entry, uint64_t now_s) {
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

/* There is a free place, as there are more of them than keys, unless memory was damaged. */
OwnLimits::Place OwnLimits::insert(uint64_t hash, const Entry &entry) {
    /* Whoever finds a key has to find it counted. */
    add_count(1);

    Path path(hash, bytes_);

    do {
        auto *at = line(path);

        for (unsigned i = 0; i < kPlaces; i++) {
            if (at->tag[i].load(std::memory_order_relaxed) == 0) {
                const Place place = {at, i};
                place.write(tag_of(hash), entry);
                return place;
            }
        }

        at->passed.store(at->passed.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    } while (path.next());

    return {};
}

void OwnLimits::remove(uint64_t hash, const Place &place) {
    place.clear();

    for (Path path(hash, bytes_); line(path) != place.line; path.next()) {
        auto &passed = line(path)->passed;
        const auto n = passed.load(std::memory_order_relaxed);

        passed.store(n - (n != 0), std::memory_order_relaxed);
    }

    add_count(UINT64_MAX);
}

void OwnLimits::remove_ended(uint64_t now_s) {
    uint64_t left = 0;

    for (uint64_t n = 0; n < lines_count(); n++) {
        for (unsigned i = 0; i < kPlaces; i++) {
            const Place place = {&lines()[n], i};
            if (!place.is_taken()) { continue; }

            if (place.has_ended(now_s)) {
                place.clear();
            } else {
                left++;
            }
        }
    }

    count_.store(left, std::memory_order_relaxed);
}

bool OwnLimits::next(uint64_t *place, Entry *entry, uint32_t *tag) const {
    while (*place < lines_count() * kPlaces) {
        const Place at = {&lines()[*place / kPlaces], static_cast<unsigned>(*place % kPlaces)};
        const auto &word = at.line->tag[at.i];

        ++*place;
        *tag = word.load(std::memory_order_acquire);
        if (*tag == 0) { continue; }

        *entry = at.entry();
        if (word.load(std::memory_order_relaxed) == *tag) { return true; }
    }

    return false;
}

uint64_t OwnLimits::place_after(uint64_t hash) const {
    const auto place = find_place(hash);
    if (!place.is_there()) { return Path(hash, bytes_).line() * kPlaces; }

    return static_cast<uint64_t>(place.line - lines()) * kPlaces + place.i + 1;
}

void OwnLimitsLoad::mark(uint64_t hash, uint64_t at) {
    auto place = table_.find_place(hash);

    if (!place.is_there()) {
        if (table_.count() >= table_.max_) { return; }

        /* until it is set, its end is before any time */
        place = table_.insert(hash, {{}, 0, at});
        if (!place.is_there()) { return; }
    }

    place.line->at[place.i].store(static_cast<uint32_t>(at), std::memory_order_relaxed);
    marks_of(place) |= kMarked << place.i;
}

/* Removes the keys for which keep(place) is not true, and counts the others. */
template <class Keep>
void OwnLimitsLoad::keep_if(const Keep &keep) {
    uint64_t kept = 0;

    for (uint64_t n = 0; n < table_.lines_count(); n++) {
        for (unsigned i = 0; i < OwnLimits::kPlaces; i++) {
            const Place place = {&table_.lines()[n], i};

            if (keep(place)) {
                kept++;
            } else {
                place.clear();
            }
        }
    }

    table_.count_.store(kept, std::memory_order_relaxed);
}

/* Removes the keys that lack a mark, and counts the others. */
void OwnLimitsLoad::keep_only(uint8_t mark) {
    keep_if([&](const Place &place) { return (marks_of(place) & mark << place.i) != 0; });
}

void OwnLimitsLoad::remove_unmarked() { keep_only(kMarked); }

/* Makes room of the keys that have no limit yet: some never will.  The others are
 * entered again.  False: there are none. */
bool OwnLimitsLoad::remove_waiting() {
    const auto before = table_.count();

    keep_if([](const Place &place) { return place.is_taken() && place.entry().own.is_set(); });
    return table_.count() < before;
}

void OwnLimitsLoad::add_path(uint64_t hash, const Place &place, uint32_t n) {
    for (Path path(hash, table_.bytes_); table_.line(path) != place.line; path.next()) {
        passed_[path.line()] += n;
    }
}

bool OwnLimitsLoad::set(uint64_t hash, const OwnLimits::Entry &entry, uint64_t now_s) {
    const bool is_set = entry.own.is_set() && entry.until_s > now_s;
    auto place = table_.find_place(hash);

    if (!place.is_there()) {
        if (!is_set) { return true; }

        if (table_.count() >= table_.max_ && !remove_waiting()) { return false; }

        place = table_.insert(hash, entry);
        if (!place.is_there()) { return false; }
    } else if (place.line->at[place.i].load(std::memory_order_relaxed) > entry.at) {
        return true;
    } else if (!is_set) {
        const auto bit = static_cast<uint8_t>(kSet << place.i);
        if ((marks_of(place) & bit) != 0) { add_path(hash, place, UINT32_MAX); }

        marks_of(place) &= ~bit;
        table_.remove(hash, place);
        return true;
    } else {
        table_.set(hash, entry, now_s);
    }

    const auto bit = static_cast<uint8_t>(kSet << place.i);
    if ((marks_of(place) & bit) == 0) { add_path(hash, place, 1); }

    marks_of(place) |= bit;
    return true;
}

void OwnLimitsLoad::end() {
    /* Memory that nobody has touched takes none. */
    if (was_empty_ && table_.count() == 0) { return; }

    keep_only(kSet);

    for (uint64_t n = 0; n < table_.lines_count(); n++) {
        table_.lines()[n].passed.store(passed_[n], std::memory_order_relaxed);
    }
}

} // namespace limit_sliding
