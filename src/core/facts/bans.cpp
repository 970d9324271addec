/* Copyright (C) the limit_sliding authors */

#include "core/facts/bans.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/base/hashes.hpp"

namespace limit_sliding {

namespace {

/* The time when doublings expire is stored in 16ths of the longest ban, modulo 32. */
constexpr uint64_t kForgottenParts = 16;
constexpr uint64_t kForgottenMask = 31;

static_assert(kPenaltyAfterMax < 1024, "rejections have 10 bits");

using namespace ban_fact;

/* Kinds of Worth in ascending order: counted rejections, remembered doublings, and bans. */
enum { kCount = Worth::kFirst, kDoublings, kBan };

uint64_t unit_ms(uint64_t max_ms) { return max_ms / kForgottenParts + 1; }

/* A decoded fact; by default an expired one. */
struct Entry {
    uint64_t rejections; /* 0: a ban */
    uint64_t time_ms;    /* end of the ban, or time of the first rejection */
    uint64_t doublings;
    uint64_t forgotten; /* time when the doublings expire, as forget_at() encodes it; 0 for a ban */

    static Entry of(uint64_t fact) {
        return {fact >> kRejectionsShift, fact & kTimeMax, fact >> kDoublingsShift & kDoublingsMax,
                fact >> kForgottenShift & kForgottenMask};
    }

    uint64_t fact() const {
        assert(rejections <= kPenaltyAfterMax && doublings <= kDoublingsMax);
        assert(forgotten <= kForgottenMask);
        return rejections << kRejectionsShift | doublings << kDoublingsShift
               | forgotten << kForgottenShift | std::min(time_ms, kTimeMax);
    }

    bool is_banned(uint64_t now_ms) const { return rejections == 0 && now_ms < time_ms; }

    uint64_t left_ms(uint64_t now_ms) const { return is_banned(now_ms) ? time_ms - now_ms : 0; }

    /* Returns the time at which the doublings expire.  The time is exact after a ban, and up to a
     * unit late while rejections are counted. */
    uint64_t forgotten_ms(uint64_t max_ms) const {
        if (rejections == 0) { return time_ms + max_ms; }

        const uint64_t unit = unit_ms(max_ms);
        const uint64_t begun = time_ms / unit;
        const uint64_t units = (forgotten - begun) & kForgottenMask;

        /* the rule may have changed */
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

Worth worth_of(const Entry &entry, const PenaltyRule &rule, uint64_t now_ms) {
    if (entry.is_banned(now_ms)) { return {kBan, entry.time_ms}; }
    if (rule.penalty_ms < rule.max_ms && entry.is_remembered(rule, now_ms)) {
        return {kDoublings, entry.time_ms};
    }
    if (entry.is_counting(rule, now_ms)) {
        return {kCount, entry.rejections << 48 | entry.time_ms};
    }
    return {Worth::kNothing, 0};
}

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

} // namespace

uint64_t PenaltyRule::length_ms(unsigned doublings) const {
    assert(doublings <= kDoublingsMax);

    /* the shift must not lose a bit */
    return penalty_ms <= max_ms >> doublings ? penalty_ms << doublings : max_ms;
}

Bans *Bans::init(void *memory, size_t bytes, const uint8_t secret[kSecretBytes]) {
    auto *bans = static_cast<Bans *>(memory);
    uint64_t word = 0;
    if (secret != nullptr) { std::memcpy(&word, secret, sizeof(word)); }
    bans->FactTable::init(bytes, word);
    return bans;
}

uint64_t Bans::common_hash(std::string_view key) {
    return SipHash13(0, 0).hash(key.data(), key.size());
}

/* Changes the entry of a key by next(entry).  Returns true if the entry was stored; false if
 * next() returned false or the table had no place. */
template <class Next>
bool Bans::update(uint64_t hash, const PenaltyRule &rule, uint64_t now_ms, const Next &next) {
    return FactTable::update(
        hash, kBan,
        [&](uint64_t, uint64_t fact) { return worth_of(Entry::of(fact), rule, now_ms); },
        [&](uint64_t &fact) {
            Entry entry = Entry::of(fact);

            if (!next(entry)) { return false; }

            if (entry.is_banned(now_ms)) { raise_until(entry.time_ms); }

            fact = entry.fact();
            return true;
        });
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

    if (now_ms >= until_ms()) { return 0; }

    walk(step, [&](uint64_t fact) { n += Entry::of(fact).is_banned(now_ms); });

    return n * step;
}

} // namespace limit_sliding
