/* Copyright (C) the limit_sliding authors */

#include "redis/shared/outbox.hpp"

#include <algorithm>

#include "core/base/atomics.hpp"

namespace limit_sliding {

namespace {

constexpr size_t kEntries = 4;

constexpr unsigned kUnitBits = 32;
constexpr unsigned kDueBits = 22;
constexpr unsigned kDueShift = kUnitBits + 2;
constexpr unsigned kGenerationShift = kDueShift + kDueBits;

constexpr uint64_t kUnits = UINT32_MAX;
constexpr uint64_t kBusy = uint64_t{1} << kUnitBits;
constexpr uint64_t kLook = uint64_t{1} << (kUnitBits + 1);
constexpr uint64_t kDue = (uint64_t{1} << kDueBits) - 1;
constexpr uint64_t kGiven = kBusy | kLook;

/* Entry::seen: the time of the last call in ms modulo 2^24, 4.6 hours, and the used units. */
constexpr unsigned kTimeBits = 24;
constexpr uint64_t kTime = (uint64_t{1} << kTimeBits) - 1;
constexpr uint64_t kUsedMax = (uint64_t{1} << (64 - kTimeBits)) - 1;

/* Entry::memo: the time from which look() may ask again, modulo 2^32 ms, 50 days; share; pace. */
constexpr uint64_t kLookMs = UINT32_MAX;
constexpr unsigned kShareShift = 32;
constexpr uint64_t kShare = UINT8_MAX;
constexpr unsigned kPaceShift = kShareShift + 8;
constexpr uint64_t kPaceMax = (uint64_t{1} << (64 - kPaceShift)) - 1;

/* Time in ms by which a sender may be late before another worker sends the units. */
constexpr uint64_t kOverdueMs = 1000;

/* Time in ms within which an entry is given to another key. */
constexpr uint64_t kGiveMs = 1000;

/* The largest difference in ms between the clocks of busy workers. */
constexpr uint64_t kClockMs = 250;

/* Replaces a hash of 0, which is the tag of an entry that was never used. */
uint64_t tag_of(uint64_t hash) { return hash + uint64_t{hash == 0}; }

bool is_busy(uint64_t word) { return (word & kBusy) != 0; }
bool is_given(uint64_t word) { return (word & kGiven) == kGiven; }
bool is_wanted(uint64_t word) { return (word & (kUnits | kLook)) != 0; }
bool is_idle(uint64_t word) { return (word & (kUnits | kGiven)) == 0; }

/* Returns the ms until the word is due, negative if it is overdue. */
int64_t left_ms(uint64_t word, uint64_t now_ms) {
    const auto left = static_cast<int64_t>(((word >> kDueShift) - now_ms) & kDue);
    return left <= static_cast<int64_t>(Outbox::kWaitMaxMs) ? left
                                                            : left - static_cast<int64_t>(kDue) - 1;
}

uint64_t with_due(uint64_t word, uint64_t due_ms) {
    return (word & ~(kDue << kDueShift)) | (due_ms & kDue) << kDueShift;
}

/* Returns true if `left` exceeds an interval, even if the clocks of workers differ. */
bool is_far_off(int64_t left, uint64_t interval_ms) {
    return left > static_cast<int64_t>(interval_ms + kClockMs);
}

/* Returns an idle word as one that waits to be sent, and sets *due_ms. */
uint64_t begun(uint64_t word, uint64_t now_ms, uint64_t interval_ms, uint64_t *due_ms) {
    const int64_t left = left_ms(word, now_ms);
    const bool is_soon = left > 0 && !is_far_off(left, interval_ms);

    *due_ms = now_ms + (is_soon ? static_cast<uint64_t>(left) : 0);
    return with_due(word, *due_ms);
}

} // namespace

struct Outbox::Entry {
    Atomic<uint64_t> tag;
    Atomic<uint64_t> word;

    /* Two independent, relaxed estimates: they need not be of one reply, and of two workers that
     * store at once, one is lost.  A worker that finds the key by is_of() acquires its values. */
    Atomic<uint64_t> seen; /* used 40 | time of the call, ms 24; 0: unknown */
    Atomic<uint64_t> memo; /* pace 24 | share 8 | time of the next look, ms 32 */

    bool may_look(uint64_t now_ms) const {
        return static_cast<int32_t>(memo.load(std::memory_order_relaxed) - now_ms) <= 0;
    }

    void look_at(uint64_t ms) {
        memo.store((memo.load(std::memory_order_relaxed) & ~kLookMs) | (ms & kLookMs),
                   std::memory_order_relaxed);
    }

    /* Returns true if the entry is the key's.  *seen_word is the word, read before the tag. */
    bool is_of(uint64_t hash, uint64_t *seen_word) const {
        *seen_word = word.load();
        return tag.load() == tag_of(hash) && !is_given(*seen_word);
    }

    /* Changes the word while the entry belongs to the key; change() returns false to leave it. */
    template <class Change>
    bool amend(uint64_t hash, const Change &change) {
        uint64_t old;

        for (unsigned i = 0; i < kAttempts && is_of(hash, &old); i++) {
            uint64_t next = old;

            if (!change(next)) { return true; }

            if (word.compare_exchange_strong(old, next)) { return true; }
        }

        return false;
    }

    /* Subtracts up to this many units of the key.  Returns their number. */
    uint64_t subtract(uint64_t hash, uint64_t units) {
        uint64_t taken = 0;
        const bool is_found = amend(hash, [&](uint64_t &old) {
            taken = std::min(old & kUnits, units);
            old -= taken;
            return taken != 0;
        });
        return is_found ? taken : 0;
    }

    /* Returns true if the entry can be given to another key. */
    bool is_free(uint64_t old, uint64_t now_ms) const {
        return is_idle(old) || ((old & kUnits) == 0 && is_busy(old) && left_ms(old, now_ms) < 0);
    }

    /* Gives the entry to a key, without units.  If this process was stopped and another one has
     * taken over, the tag of the other one stays. */
    bool give(uint64_t hash, uint64_t old, uint64_t now_ms) {
        const uint64_t next_generation = ((old >> kGenerationShift) + 1) << kGenerationShift;
        uint64_t old_tag = tag.load();
        uint64_t given = with_due(next_generation | kGiven, now_ms + kGiveMs);

        if (!word.compare_exchange_strong(old, given)
            || !tag.compare_exchange_strong(old_tag, tag_of(hash))) {
            return false;
        }

        seen.store(0);
        memo.store(now_ms & kLookMs);
        return word.compare_exchange_strong(given, with_due(next_generation, now_ms));
    }
};

struct Outbox::Set {
    Entry entries[kEntries];
};

Outbox *Outbox::init(void *memory, size_t bytes) {
    static_assert(sizeof(Entry) == 32 && sizeof(Set) == 128, "a set is two cache lines");

    auto *outbox = static_cast<Outbox *>(memory);

    outbox->sets_ = (bytes - sizeof(Outbox)) / sizeof(Set);
    return outbox;
}

Outbox::Set &Outbox::set_of(uint64_t hash) const {
    return reinterpret_cast<Set *>(const_cast<Outbox *>(this) + 1)[(hash >> 32) * sets_ >> 32];
}

Outbox::Entry *Outbox::find(uint64_t hash) const {
    for (Entry &entry : set_of(hash).entries) {
        uint64_t word;

        if (entry.is_of(hash, &word)) { return &entry; }
    }

    return nullptr;
}

Outbox::Entry *Outbox::find_or_insert(uint64_t hash, uint64_t now_ms) {
    for (unsigned i = 0; i < kAttempts; i++) {
        if (Entry *entry = find(hash)) { return entry; }

        Entry *choice = nullptr;
        uint64_t victim_word = 0;
        int64_t least = 0;

        for (Entry &entry : set_of(hash).entries) {
            const uint64_t word = entry.word.load();
            const int64_t left = entry.tag.load() == 0 ? INT64_MIN : left_ms(word, now_ms);

            if (entry.is_free(word, now_ms) && (choice == nullptr || left < least)) {
                choice = &entry;
                victim_word = word;
                least = left;
            }
        }

        if (choice == nullptr) { return nullptr; }

        if (choice->give(hash, victim_word, now_ms)) { return choice; }
    }

    return nullptr;
}

Outbox::Added Outbox::add(uint64_t hash, uint64_t units, uint64_t now_ms, uint64_t interval_ms,
                          uint64_t *due_ms) {
    Entry *entry = find_or_insert(hash, now_ms);
    Added added = Added::kFull;

    if (entry == nullptr) { return added; }

    const bool is_found = entry->amend(hash, [&](uint64_t &word) {
        added = Added::kFull;
        if (units > kUnits - (word & kUnits)) { return false; }

        const int64_t left = left_ms(word, now_ms);
        const bool is_late = left < -static_cast<int64_t>(is_busy(word) ? 0 : kOverdueMs);
        const bool is_far = is_far_off(left, interval_ms) && !is_busy(word);

        added = Added::kSend;
        if (is_idle(word)) {
            word = begun(word, now_ms, interval_ms, due_ms);
        } else if (is_late) {
            *due_ms = now_ms;
            word = with_due(word & ~kBusy, now_ms);
        } else if (is_far) {
            *due_ms = now_ms + interval_ms;
            word = with_due(word, *due_ms);
        } else {
            added = Added::kDone;
        }

        word += units;
        return true;
    });
    return is_found ? added : Added::kFull;
}

Outbox::Added Outbox::look(uint64_t hash, uint64_t now_ms, uint64_t interval_ms, uint64_t *due_ms) {
    Entry *entry = find_or_insert(hash, now_ms);
    Added added = Added::kDone;

    if (entry == nullptr || !entry->may_look(now_ms)) { return added; }

    (void)entry->amend(hash, [&](uint64_t &word) {
        const int64_t left = left_ms(word, now_ms);

        added = Added::kDone;
        if (is_busy(word)) {
            if (left >= 0) { return false; }

            *due_ms = now_ms;
            word = with_due(word & ~kBusy, now_ms) | kLook;
        } else if (is_idle(word)) {
            word = begun(word, now_ms, interval_ms, due_ms) | kLook;
        } else if (is_far_off(left, interval_ms) || left < -static_cast<int64_t>(kOverdueMs)) {
            *due_ms = now_ms;
            word = with_due(word, now_ms);
        } else {
            return false;
        }

        added = Added::kSend;
        return true;
    });
    return added;
}

Outbox::Took Outbox::take(uint64_t hash, uint64_t now_ms, uint64_t most_ms, bool early,
                          uint64_t *units, uint64_t *due_ms) {
    Entry *first = find(hash);
    Took took = Took::kNothing;
    *units = 0;

    if (first == nullptr) { return took; }

    const bool is_found = first->amend(hash, [&](uint64_t &word) {
        took = Took::kNothing;
        if (is_busy(word) || !is_wanted(word)) { return false; }

        const int64_t left = left_ms(word, now_ms);

        if (left > 0 && !early) {
            took = Took::kLater;
            *due_ms = now_ms + static_cast<uint64_t>(left);
            return false;
        }

        took = Took::kTaken;
        *units = word & kUnits;
        word = with_due((word & ~(kUnits | kLook)) | kBusy, now_ms + std::min(most_ms, kWaitMaxMs));
        return true;
    });

    if (!is_found) { took = Took::kNothing; }

    if (took != Took::kTaken) { return took; }

    for (Entry &entry : set_of(hash).entries) {
        if (&entry != first) { *units += entry.subtract(hash, kUnits); }
    }

    return took;
}

Outbox::Added Outbox::done(uint64_t hash, uint64_t now_ms, const Rest &rest, uint64_t *due_ms) {
    Entry *entry = find(hash);
    Added added = Added::kDone;

    if (entry == nullptr) { return rest.units != 0 ? Added::kFull : added; }

    entry->look_at(rest.look_ms);
    const bool is_found = entry->amend(hash, [&](uint64_t &word) {
        const bool is_new = (word & kUnits) != 0;

        word = (word & ~(kBusy | kUnits)) | std::min(kUnits, (word & kUnits) + rest.units)
               | (rest.look ? kLook : 0);
        *due_ms = is_new || rest.look ? rest.due_ms : std::max(rest.due_ms, now_ms + rest.wait_ms);
        *due_ms = std::min(*due_ms, now_ms + kWaitMaxMs);
        if (!is_wanted(word)) { *due_ms = rest.due_ms; }

        word = with_due(word, *due_ms);
        added = is_wanted(word) ? Added::kSend : Added::kDone;
        return true;
    });
    return is_found || rest.units == 0 ? added : Added::kFull;
}

uint64_t Outbox::units(uint64_t hash) const {
    uint64_t sum = 0;

    for (const Entry &entry : set_of(hash).entries) {
        uint64_t word;

        if (entry.is_of(hash, &word)) { sum += word & kUnits; }
    }

    return sum;
}

uint64_t Outbox::subtract(uint64_t hash, uint64_t units) {
    uint64_t subtracted = 0;

    for (Entry &entry : set_of(hash).entries) {
        subtracted += entry.subtract(hash, units - subtracted);
    }

    return subtracted;
}

Outbox::Seen Outbox::seen(uint64_t hash, uint64_t now_ms) const {
    const Entry *entry = find(hash);

    if (entry == nullptr) { return {}; }

    const uint64_t last = entry->seen.load(std::memory_order_relaxed);
    const uint64_t memo = entry->memo.load(std::memory_order_relaxed);

    if (last == 0) { return {}; }

    return {last >> kTimeBits, now_ms - ((now_ms - last) & kTime), memo >> kShareShift & kShare,
            memo >> kPaceShift};
}

void Outbox::set_seen(uint64_t hash, const Seen &seen) {
    Entry *entry = find(hash);

    if (entry == nullptr) { return; }

    entry->seen.store(std::min(seen.used, kUsedMax) << kTimeBits | (seen.at_ms & kTime),
                      std::memory_order_relaxed);
    entry->memo.store((entry->memo.load(std::memory_order_relaxed) & kLookMs)
                          | std::min(seen.share, kShare) << kShareShift
                          | std::min(seen.pace, kPaceMax) << kPaceShift,
                      std::memory_order_relaxed);
}

} // namespace limit_sliding
