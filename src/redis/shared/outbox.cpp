/* Copyright (C) the limit_sliding authors */

#include "redis/shared/outbox.hpp"

#include <algorithm>

#include "core/base/atomics.hpp"

namespace limit_sliding {

namespace {

constexpr unsigned kUnitBits = 36;
constexpr unsigned kDueBits = 22;
constexpr unsigned kDueShift = kUnitBits + 2;

constexpr uint64_t kUnits = (uint64_t{1} << kUnitBits) - 1;
constexpr int64_t kUnitsMax = static_cast<int64_t>(kUnits / 2);
constexpr uint64_t kBusy = uint64_t{1} << kUnitBits;
constexpr uint64_t kLook = uint64_t{1} << (kUnitBits + 1);
constexpr uint64_t kDue = (uint64_t{1} << kDueBits) - 1;

/* The further words of a key.  kLife is Report::life and the generation of the key's place: if
 * the generation is another one, a former key has left the words.  kAcked changes by
 * compare-and-swap.  The others are independent, relaxed estimates: they need not be of one reply,
 * and of two workers that store at once, one is lost. */
enum { kLife, kAcked, kOthers, kAdded, kSeen, kMemo, kFurther };

constexpr unsigned kLifeBits = 48;
constexpr uint64_t kLifeMax = (uint64_t{1} << kLifeBits) - 1;

/* kSeen: the time of the last call in ms modulo 2^24, 4.6 hours, and the reserved units; 0: unknown
 */
constexpr unsigned kTimeBits = 24;
constexpr uint64_t kTime = (uint64_t{1} << kTimeBits) - 1;
constexpr uint64_t kReservedMax = (uint64_t{1} << (64 - kTimeBits)) - 1;

/* kMemo: the time from which look() may ask again, modulo 2^32 ms, 50 days; share; pace. */
constexpr uint64_t kLookMs = UINT32_MAX;
constexpr unsigned kShareShift = 32;
constexpr uint64_t kShare = UINT8_MAX;
constexpr unsigned kPaceShift = kShareShift + 8;
constexpr uint64_t kPaceMax = (uint64_t{1} << (64 - kPaceShift)) - 1;

/* Time in ms by which a sender may be late before another worker sends the units. */
constexpr uint64_t kOverdueMs = 1000;

/* Time in ms by which units are overdue when other keys may evict them: until then, a late sender
 * or the next request of their key sends them. */
constexpr int64_t kGoneMs = 10000;

/* The largest difference in ms between the clocks of busy workers. */
constexpr uint64_t kClockMs = 250;

bool is_busy(uint64_t fact) { return (fact & kBusy) != 0; }
bool is_wanted(uint64_t fact) { return (fact & (kUnits | kLook)) != 0; }
bool is_idle(uint64_t fact) { return !is_busy(fact) && !is_wanted(fact); }

int64_t units_of(uint64_t fact) {
    const auto units = static_cast<int64_t>(fact & kUnits);
    return units <= kUnitsMax ? units : units - static_cast<int64_t>(kUnits) - 1;
}

uint64_t with_units(uint64_t fact, int64_t units) {
    return (fact & ~kUnits) | (static_cast<uint64_t>(units) & kUnits);
}

/* Returns the ms until the fact is due, negative if it is overdue. */
int64_t left_ms(uint64_t fact, uint64_t now_ms) {
    const auto left = static_cast<int64_t>(((fact >> kDueShift) - now_ms) & kDue);
    return left <= static_cast<int64_t>(Outbox::kWaitMaxMs) ? left
                                                            : left - static_cast<int64_t>(kDue) - 1;
}

uint64_t with_due(uint64_t fact, uint64_t due_ms) {
    return (fact & ~(kDue << kDueShift)) | (due_ms & kDue) << kDueShift;
}

/* Returns true if the caller must send the fact: it is idle, its sender is late, or it is due too
 * far off.  Sets the time at which it is due: `far_ms` from now, if it was too far off. */
bool begin_wait(uint64_t &fact, uint64_t now_ms, uint64_t interval_ms, uint64_t far_ms,
                uint64_t *due_ms) {
    const int64_t left = left_ms(fact, now_ms);
    const bool is_far = left > static_cast<int64_t>(interval_ms + kClockMs);
    const bool is_late = left < -static_cast<int64_t>(is_busy(fact) ? 0 : kOverdueMs);
    if (is_idle(fact)) {
        /* a new key is due now */
        const bool is_soon = fact != 0 && left > 0 && !is_far;
        *due_ms = now_ms + (is_soon ? static_cast<uint64_t>(left) : 0);
    } else if (is_late || (is_far && !is_busy(fact))) {
        *due_ms = now_ms + (is_late ? 0 : far_ms);
    } else {
        return false;
    }

    fact = with_due(fact & ~kBusy, *due_ms);
    return true;
}

/* Kinds of Worth: keys without units, in the order in which they were due; then keys whose units
 * nobody sends, the fewest units first. */
enum { kNoUnits = Worth::kFirst, kGone };

Worth worth_of(uint64_t fact, uint64_t now_ms) {
    const int64_t left = left_ms(fact, now_ms);
    const bool is_needed = is_wanted(fact) ? left >= -kGoneMs : is_busy(fact) && left >= 0;
    if (is_needed) { return {Worth::kPinned, 0}; }

    const int64_t units = units_of(fact);
    return units > 0 ? Worth{kGone, static_cast<uint64_t>(units)}
                     : Worth{kNoUnits, static_cast<uint64_t>(left) + kDue};
}

} // namespace

Outbox *Outbox::init(void *memory, size_t bytes) {
    static_assert(kDueShift + kDueBits <= kFactBits, "a fact has all fields");

    auto *outbox = static_cast<Outbox *>(memory);
    outbox->FactTable::init(bytes, 0, kFurther);
    return outbox;
}

/* Returns the further words of a key, or nullptr if they are of a former key. */
uint64_t *Outbox::known(uint64_t hash) const {
    uint64_t generation = 0;
    uint64_t *words = further(hash, &generation);
    const uint64_t life = words != nullptr ? load(&words[kLife]) : 0;
    return life != 0 && life >> kLifeBits == generation ? words : nullptr;
}

/* Changes the fact of a key as of now by change(fact), as FactTable::update() does.  Sets *evicted
 * to the units of an evicted key, if `evicted` is not nullptr. */
template <class Change>
bool Outbox::update(uint64_t hash, uint64_t now_ms, uint64_t *evicted, const Change &change) {
    return FactTable::update(
        hash, kGone, [=](uint64_t, uint64_t fact) { return worth_of(fact, now_ms); }, change,
        evicted);
}

Outbox::Added Outbox::add(uint64_t hash, int64_t units, uint64_t now_ms, uint64_t interval_ms,
                          uint64_t *due_ms, uint64_t *evicted) {
    Added added = Added::kFull;

    const bool is_added = update(hash, now_ms, evicted, [&](uint64_t &fact) {
        const int64_t sum = units_of(fact) + units;
        if (sum > kUnitsMax || sum < -kUnitsMax) { return false; }

        const bool begins = begin_wait(fact, now_ms, interval_ms, interval_ms, due_ms);
        added = begins ? Added::kSend : Added::kDone;
        fact = with_units(fact, sum);
        return true;
    });
    return is_added ? added : Added::kFull;
}

Outbox::Added Outbox::look(uint64_t hash, uint64_t now_ms, uint64_t interval_ms, uint64_t *due_ms,
                           uint64_t *evicted) {
    const uint64_t *words = known(hash);
    const uint64_t memo = words != nullptr ? load(&words[kMemo]) : 0;
    if (memo != 0 && static_cast<int32_t>(memo - now_ms) > 0) { return Added::kDone; }

    const bool is_added = update(hash, now_ms, evicted, [&](uint64_t &fact) {
        if (!begin_wait(fact, now_ms, interval_ms, 0, due_ms)) { return false; }

        fact |= kLook;
        return true;
    });
    return is_added ? Added::kSend : Added::kDone;
}

Outbox::Took Outbox::take(uint64_t hash, uint64_t now_ms, uint64_t most_ms, bool early,
                          uint64_t life, Report *report, uint64_t *due_ms) {
    Took took = Took::kNothing;

    const bool is_taken = update(hash, now_ms, nullptr, [&](uint64_t &fact) {
        took = Took::kNothing;
        if (is_busy(fact) || !is_wanted(fact)) { return false; }

        const int64_t left = left_ms(fact, now_ms);

        if (left > 0 && !early) {
            took = Took::kLater;
            *due_ms = now_ms + static_cast<uint64_t>(left);
            return false;
        }

        report->units = units_of(fact);
        fact = with_due((fact & ~kLook) | kBusy, now_ms + std::min(most_ms, kWaitMaxMs));
        return true;
    });

    if (!is_taken) { return took; }

    *report = {life, 0, report->units};
    if (const uint64_t *words = known(hash)) {
        report->life = load(&words[kLife]) & kLifeMax;
        report->acked = static_cast<int64_t>(load(&words[kAcked]));
        return Took::kTaken;
    }

    uint64_t generation = 0;
    if (uint64_t *words = further(hash, &generation)) {
        for (unsigned i = kAcked; i < kFurther; i++) {
            store(&words[i], 0);
        }
        shared(&words[kLife]).store(generation << kLifeBits | life);
    }
    return Took::kTaken;
}

bool Outbox::acknowledge(uint64_t hash, const Report &report, int64_t total) {
    uint64_t *words = known(hash);
    auto acked = static_cast<uint64_t>(report.acked);
    return words != nullptr && (load(&words[kLife]) & kLifeMax) == report.life
           && shared(&words[kAcked]).compare_exchange_strong(acked, static_cast<uint64_t>(total));
}

Outbox::Added Outbox::done(uint64_t hash, uint64_t now_ms, const Report &report, const Rest &rest,
                           uint64_t *due_ms) {
    Added added = Added::kDone;

    if (uint64_t *words = known(hash)) {
        store(&words[kMemo], (load(&words[kMemo]) & ~kLookMs) | (rest.look_ms & kLookMs));
    }

    update(hash, now_ms, nullptr, [&](uint64_t &fact) {
        added = Added::kDone;
        if (fact == 0) { return false; }

        const bool is_new = units_of(fact) != report.units || (fact & kLook) != 0;

        fact = with_units(fact, units_of(fact) - rest.settled);
        fact = (fact & ~kBusy) | (rest.look ? kLook : 0);
        *due_ms = is_new || rest.look ? rest.due_ms : std::max(rest.due_ms, now_ms + rest.wait_ms);
        *due_ms = std::min(*due_ms, now_ms + kWaitMaxMs);
        if (!is_wanted(fact)) { *due_ms = rest.due_ms; }

        if (rest.leaves && is_wanted(fact)) { *due_ms = now_ms - kOverdueMs - 1; }

        fact = with_due(fact, *due_ms);
        added = is_wanted(fact) ? Added::kSend : Added::kDone;
        return true;
    });

    return added;
}

int64_t Outbox::units(uint64_t hash) const {
    int64_t units = 0;
    FactTable::look(hash, [&](uint64_t fact) {
        units = units_of(fact);
        return true;
    });
    return units;
}

uint64_t Outbox::subtract(uint64_t hash, uint64_t units) {
    int64_t subtracted = 0;
    const bool is_changed = update(hash, 0, nullptr, [&](uint64_t &fact) {
        const int64_t before = units_of(fact);
        const auto most = static_cast<int64_t>(std::min<uint64_t>(units, kUnitsMax));
        subtracted = std::clamp<int64_t>(before, 0, most);
        fact = with_units(fact, before - subtracted);
        return subtracted != 0;
    });
    return is_changed ? static_cast<uint64_t>(subtracted) : 0;
}

Outbox::Seen Outbox::seen(uint64_t hash, uint64_t now_ms) const {
    const uint64_t *words = known(hash);
    if (words == nullptr) { return {}; }

    const uint64_t last = load(&words[kSeen]);
    const uint64_t memo = load(&words[kMemo]);
    if (last == 0) { return {}; }

    return {static_cast<int64_t>(load(&words[kOthers])),
            load(&words[kAdded]),
            last >> kTimeBits,
            now_ms - ((now_ms - last) & kTime),
            memo >> kShareShift & kShare,
            memo >> kPaceShift};
}

void Outbox::set_seen(uint64_t hash, const Seen &seen) {
    uint64_t *words = known(hash);
    if (words == nullptr) { return; }

    store(&words[kOthers], static_cast<uint64_t>(seen.others));
    store(&words[kAdded], seen.added);
    store(&words[kSeen], std::min(seen.reserved, kReservedMax) << kTimeBits | (seen.at_ms & kTime));
    store(&words[kMemo], (load(&words[kMemo]) & kLookMs)
                             | std::min(seen.share, kShare) << kShareShift
                             | std::min(seen.pace, kPaceMax) << kPaceShift);
}

} // namespace limit_sliding
