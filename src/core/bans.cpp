/* Copyright (C) the limit_sliding authors */

#include "core/bans.hpp"

#include <algorithm>
#include <cstring>

#include "core/siphash.hpp"

namespace limit_sliding {

namespace {

/* Units of the longest ban in which a counting key's doublings are forgotten, and their
 * numbers. */
constexpr uint64_t kForgottenParts = 16;
constexpr uint64_t kForgottenMask = 31;

static_assert(kPenaltyAfterMax < 1024, "rejections have 10 bits");

using namespace ban_words;

/* A claim of no key. */
constexpr uint64_t kWithdrawn = kTag;

bool is_claim(uint64_t state) { return (state & kTag) != 0; }

/* Returns the tag with which a key may claim a place. */
uint64_t next_tag(uint64_t key_tag, uint64_t old_tag) {
    return key_tag | (old_tag + 1) % kTagGenerations;
}

uint64_t unit_ms(uint64_t max_ms) { return max_ms / kForgottenParts + 1; }

/* What a state says.  The default is over at any time. */
struct Entry {
    uint64_t rejections; /* 0: a ban */
    uint64_t time_ms;    /* when it ends, or when the first rejection was */
    uint64_t doublings;
    uint64_t forgotten; /* set by forget_at() */

    static Entry of(uint64_t state) {
        return {state >> kRejectionsShift, state >> kTimeShift & kTimeMax,
                state >> kDoublingsShift & kDoublingsMax,
                state >> kForgottenShift & kForgottenMask};
    }

    uint64_t state() const {
        return rejections << kRejectionsShift | doublings << kDoublingsShift
               | forgotten << kForgottenShift | std::min(time_ms, kTimeMax) << kTimeShift;
    }

    bool is_banned(uint64_t now_ms) const { return rejections == 0 && now_ms < time_ms; }

    uint64_t left_ms(uint64_t now_ms) const { return is_banned(now_ms) ? time_ms - now_ms : 0; }

    /* Returns when the doublings are forgotten: exact after a ban, and up to a unit
     * later while rejections are counted. */
    uint64_t forgotten_ms(uint64_t max_ms) const {
        if (rejections == 0) { return time_ms + max_ms; }

        const uint64_t unit = unit_ms(max_ms);
        const uint64_t begun = time_ms / unit;
        const uint64_t units = (forgotten - begun) & kForgottenMask;

        /* of a rule that has changed, perhaps */
        return doublings == 0 || units > kForgottenParts + 1 ? 0 : (begun + units) * unit;
    }

    void forget_at(uint64_t then_ms, uint64_t max_ms) {
        const uint64_t unit = unit_ms(max_ms);

        forgotten = (then_ms + unit - 1) / unit & kForgottenMask;
    }

    bool is_counting(const PenaltyRule &rule, uint64_t now_ms) const {
        return rejections != 0 && now_ms < time_ms + rule.window_ms;
    }

    bool is_remembered(const PenaltyRule &rule, uint64_t now_ms) const {
        return time_ms != 0 && now_ms < forgotten_ms(rule.max_ms);
    }
};

/* How much of a loss it is to give up a state: first by the kind, then by rank. */
struct Worth {
    enum Kind { kNothing, kClaim, kCount, kDoublings, kBan } kind;
    uint64_t rank;

    bool operator<(const Worth &other) const {
        return kind != other.kind ? kind < other.kind : rank < other.rank;
    }
};

Worth worth_of(const Entry &entry, const PenaltyRule &rule, uint64_t now_ms) {
    if (entry.is_banned(now_ms)) { return {Worth::kBan, entry.time_ms}; }

    if (rule.penalty_ms < rule.max_ms && entry.is_remembered(rule, now_ms)) {
        return {Worth::kDoublings, entry.time_ms};
    }

    if (entry.is_counting(rule, now_ms)) {
        return {Worth::kCount, entry.rejections << 48 | entry.time_ms};
    }

    return {Worth::kNothing, 0};
}

/* Returns the doublings of the next ban. */
uint64_t next_doublings(const Entry &entry, const PenaltyRule &rule, uint64_t now_ms) {
    if (!entry.is_remembered(rule, now_ms)) { return 0; }

    if (entry.rejections != 0) { return entry.doublings; }

    const bool is_longest = rule.length_ms(static_cast<unsigned>(entry.doublings)) == rule.max_ms;

    return entry.doublings + !is_longest;
}

/* Returns the entry after one more rejection of a key that is not banned. */
Entry after_rejection(const Entry &entry, const PenaltyRule &rule, uint64_t now_ms) {
    const bool goes_on = entry.is_counting(rule, now_ms);
    Entry next = {goes_on ? entry.rejections + 1 : 1, goes_on ? entry.time_ms : now_ms,
                  next_doublings(entry, rule, now_ms), 0};

    if (next.rejections >= rule.after) {
        return {0, now_ms + rule.length_ms(static_cast<unsigned>(next.doublings)), next.doublings,
                0};
    }

    if (next.doublings != 0) { next.forget_at(entry.forgotten_ms(rule.max_ms), rule.max_ms); }

    return next;
}

bool replace(uint64_t *word, uint64_t old, uint64_t next) {
    return shared(word).compare_exchange_strong(old, next);
}

} // namespace

uint64_t PenaltyRule::length_ms(unsigned doublings) const {
    /* shifted as far as no bit is lost */
    return penalty_ms <= max_ms >> doublings ? penalty_ms << doublings : max_ms;
}

/* A place as it was read: its state is a claim, or of this tag. */
struct Bans::Seen {
    Place *place;
    uint64_t tag;
    uint64_t state;

    /* Returns false if another key took the place between the reads. */
    static bool of(Place &place, Seen *seen) {
        *seen = {&place, read(place.tag), read(place.state)};

        return read(place.tag) == seen->tag;
    }

    bool holds(uint64_t key_tag) const {
        return tag != 0 && !is_claim(state) && is_same_key(tag, key_tag);
    }
};

/* What a search has found. */
struct Bans::Search {
    enum { kHeld, kFree, kAgain } result;
    Seen seen;   /* the key's, or a place to take */
    Worth worth; /* of what is there */
};

Bans *Bans::init(void *memory, size_t bytes, const uint8_t secret[kSecretBytes]) {
    auto *bans = static_cast<Bans *>(memory);

    if (secret != nullptr) { std::memcpy(&bans->secret_, secret, sizeof(bans->secret_)); }

    bans->line_count_ = (bytes - sizeof(Bans)) / sizeof(Line);

    return bans;
}

uint64_t Bans::common_hash(std::string_view key) {
    return SipHash13(0, 0).hash(key.data(), key.size());
}

uint64_t Bans::places() const { return line_count_ * kLinePlaces; }

Bans::Search Bans::search(uint64_t keyed_hash, const PenaltyRule &rule, uint64_t now_ms) const {
    const uint64_t tag = tag_of(keyed_hash);
    Search found = {Search::kAgain, {}, {Worth::kBan, UINT64_MAX}};

    for (unsigned choice = 0; choice < kLinesOfKey; choice++) {
        for (Place &place : line_of(keyed_hash, choice).places) {
            Seen seen;

            if (!Seen::of(place, &seen)) { return {Search::kAgain, {}, {}}; }

            if (seen.tag == 0) { return {Search::kFree, seen, {Worth::kNothing, 0}}; }

            if (seen.holds(tag)) { return {Search::kHeld, seen, {}}; }

            /* a claim for this key, which another process may have left */
            if (is_claim(seen.state) && is_same_key(seen.state, tag)) {
                return {Search::kFree, seen, {Worth::kClaim, 0}};
            }

            const Worth worth = is_claim(seen.state)
                                    ? Worth{Worth::kClaim, 0}
                                    : worth_of(Entry::of(seen.state), rule, now_ms);

            if (worth < found.worth) { found = {Search::kFree, seen, worth}; }
        }
    }

    return found;
}

/* Withdraws other claims of the key of this tag, or the one of this place.  Returns
 * false if the key is not alone. */
bool Bans::is_alone(const Place &own, uint64_t keyed_hash, uint64_t tag) const {
    for (unsigned choice = 0; choice < kLinesOfKey; choice++) {
        for (Place &place : line_of(keyed_hash, choice).places) {
            Seen seen;

            if (&place == &own) { continue; }

            if (!Seen::of(place, &seen)) { return false; }

            if (is_claim(seen.state) && is_same_key(seen.state, tag)) {
                if (&place < &own || !replace(&place.state, seen.state, kWithdrawn)) {
                    return false;
                }
            } else if (seen.holds(tag)) {
                return false;
            }

            if (seen.tag == 0) { return true; }
        }
    }

    return true;
}

/* Has a key take a place, or goes on with a claim for it.  Returns false if another
 * process was faster. */
bool Bans::take(const Seen &seen, uint64_t keyed_hash, uint64_t state) {
    Place &place = *seen.place;
    const uint64_t key_tag = tag_of(keyed_hash);
    const bool goes_on = seen.tag == seen.state && is_same_key(seen.tag, key_tag);
    const uint64_t tag = goes_on ? seen.tag : next_tag(key_tag, seen.tag);

    if (!replace(&place.state, seen.state, tag)) { return false; }

    if (!replace(&place.tag, seen.tag, tag)) { return false; }

    if (!is_alone(place, keyed_hash, tag)) {
        replace(&place.state, tag, kWithdrawn);
        return false;
    }

    return replace(&place.state, tag, state | tag % kStateGenerations);
}

void Bans::raise_until(uint64_t until_ms) {
    uint64_t old = load(&until_ms_);

    while (old < until_ms && !shared(&until_ms_).compare_exchange_weak(old, until_ms)) {}
}

/* Has `next` change what is known of a key, unless that returns false.  Returns true if
 * it has changed. */
template <class Next>
bool Bans::update(uint64_t hash, const PenaltyRule &rule, uint64_t now_ms, const Next &next) {
    const uint64_t keyed_hash = keyed(hash);

    for (unsigned i = 0; i < kAttempts; i++) {
        const Search found = search(keyed_hash, rule, now_ms);

        if (found.result == Search::kAgain) { continue; }

        const bool is_held = found.result == Search::kHeld;
        Entry entry = is_held ? Entry::of(found.seen.state) : Entry{};

        if (!next(entry)) { return false; }

        if (!is_held && found.worth.kind == Worth::kBan
            && worth_of(entry, rule, now_ms) < found.worth) {
            return false;
        }

        if (entry.is_banned(now_ms)) { raise_until(entry.time_ms); }

        if (is_held ? replace(&found.seen.place->state, found.seen.state,
                              entry.state() | found.seen.tag % kStateGenerations)
                    : take(found.seen, keyed_hash, entry.state())) {
            return true;
        }
    }

    return false;
}

Ban Bans::reject(uint64_t hash, const PenaltyRule &rule, uint64_t now_ms) {
    Ban ban = {0, 0};

    const bool is_changed = update(hash, rule, now_ms, [&](Entry &entry) {
        if (entry.is_banned(now_ms)) { return false; }

        entry = after_rejection(entry, rule, now_ms);
        ban = {entry.left_ms(now_ms), static_cast<unsigned>(entry.doublings)};

        return true;
    });

    return is_changed ? ban : Ban{0, 0};
}

bool Bans::set(uint64_t hash, const Ban &ban, const PenaltyRule &rule, uint64_t now_ms) {
    return update(hash, rule, now_ms, [&](Entry &entry) {
        const uint64_t end_ms = now_ms + ban.left_ms;
        const uint64_t doublings = std::min<uint64_t>(ban.doublings, kDoublingsMax);
        const bool is_banned = entry.is_banned(now_ms);

        if (is_banned && end_ms <= entry.time_ms && doublings <= entry.doublings) { return false; }

        entry = {0, is_banned ? std::max(end_ms, entry.time_ms) : end_ms,
                 is_banned ? std::max(doublings, entry.doublings) : doublings, 0};

        return true;
    });
}

bool Bans::lift(uint64_t hash, uint64_t now_ms) {
    bool was_banned = false;

    update(hash, {}, now_ms, [&](Entry &entry) {
        if (entry.time_ms == 0) { return false; }

        was_banned = entry.is_banned(now_ms);
        entry = {};

        return true;
    });

    return was_banned;
}

uint64_t Bans::banned(uint64_t now_ms, uint64_t places_max) const {
    const uint64_t step = (places() - 1) / places_max + 1;
    uint64_t n = 0;

    if (now_ms >= load(&until_ms_)) { return 0; }

    for (uint64_t i = 0; i < line_count_; i += step) {
        for (const Place &place : lines()[i].places) {
            const uint64_t state = load(&place.state);

            /* a claim has rejections, as it has a tag's first bit */
            n += Entry::of(state).is_banned(now_ms);
        }
    }

    return n * step;
}

} // namespace limit_sliding
