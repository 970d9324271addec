/* Copyright (C) the limit_sliding authors */

#include "redis/shared/ban_exchange.hpp"

#include <algorithm>

#include "core/base/atomics.hpp"

namespace limit_sliding {

namespace {

/* The most places that are tried for a hash. */
constexpr uint32_t kTries = 64;

/* The ms after the sending of a call in which Redis accepts its bans: no ban ends later by more
 * on another node.  If a ban and a lift are no further apart, the last reported one holds. */
constexpr uint64_t kLateMs = 500;

/* The bit of Lift::word that is set while the lift waits. */
constexpr uint64_t kWaits = 1;

/* The longest ban in a reply, in ms: a leap year, and a day for differences of clocks. */
constexpr int64_t kLeftMax = int64_t{367} * 24 * 60 * 60 * 1000;

/* The numbers of a reply before its bans. */
constexpr size_t kHead = 5;

/* Bits of the second number: Redis has lost its data; the call was late. */
constexpr int64_t kLost = 1;
constexpr int64_t kLate = 2;

/* Bound of times in ms, and of orders, which exceed times slightly.  Doubles hold both. */
constexpr int64_t kTimeMax = int64_t{1} << 52;

bool is_time(int64_t number) { return number >= 0 && number < kTimeMax; }

bool is_half(int64_t number) { return number >= 0 && number <= UINT32_MAX; }

/* Returns true if these are the numbers of a reply to the call. */
bool is_reply(const BanCall &call, const int64_t *numbers, size_t n) {
    if (n < kHead || (n - kHead) % kScriptBanNumbers != 0) { return false; }

    /* a node that has read no set cannot have lost it */
    const int64_t flags = numbers[1];
    if (flags < 0 || flags > (kLost | kLate) || ((flags & kLost) != 0 && call.since == 0)) {
        return false;
    }

    if (!is_time(numbers[0]) || !is_time(numbers[2]) || !is_time(numbers[3]) || !is_time(numbers[4])
        || numbers[3] > numbers[4]) {
        return false;
    }

    for (size_t i = kHead; i < n; i += kScriptBanNumbers) {
        const int64_t left = numbers[i + 2];
        if (!is_half(numbers[i]) || !is_half(numbers[i + 1]) || left <= 0 || left / 32 > kLeftMax) {
            return false;
        }
    }
    return true;
}

/* Returns the time, 1 or more, at which a ban or a lift of this length in ms began. */
uint64_t begun_ms(uint64_t left_ms, uint64_t length_ms, uint64_t now_ms) {
    const uint64_t end_ms = now_ms + std::min(left_ms, length_ms);
    return std::max<uint64_t>(end_ms - std::min(end_ms, length_ms), 1);
}

uint64_t begun_ms(const Ban &ban, const PenaltyRule &rule, uint64_t now_ms) {
    return begun_ms(ban.left_ms, rule.length_ms(ban.doublings), now_ms);
}

} // namespace

BanExchange *BanExchange::init(void *memory, size_t bytes) {
    auto *exchange = static_cast<BanExchange *>(memory);
    const auto words = static_cast<uint32_t>((bytes - sizeof(BanExchange)) / sizeof(uint64_t));
    const uint32_t half = words / 2;

    exchange->waiting_ = {0, 0, half};
    exchange->reported_ = {0, half, half};
    return exchange;
}

uint64_t *BanExchange::words(const Ring &ring) const {
    return reinterpret_cast<uint64_t *>(const_cast<BanExchange *>(this) + 1) + ring.first;
}

bool BanExchange::put(Ring &ring, uint64_t hash) {
    const uint64_t first = shared(&ring.next).fetch_add(1);

    for (uint32_t i = 0; i < std::min(kTries, ring.size); i++) {
        uint64_t none = 0;

        if (shared(&words(ring)[(first + i) % ring.size]).compare_exchange_strong(none, hash)) {
            return true;
        }
    }

    return false;
}

BanExchange::Lift *BanExchange::find_lift(uint64_t hash) {
    for (Lift &lift : lifts_) {
        if (load(&lift.word) != 0 && load(&lift.hash) == hash) { return &lift; }
    }

    return nullptr;
}

/* Replaces the lift that was read with the word `old`.  Returns false if it has changed. */
bool BanExchange::Lift::replace(uint64_t old, uint64_t next_hash, uint64_t next) {
    if (!shared(&word).compare_exchange_strong(old, 0)) { return false; }

    shared(&hash).store(next_hash);
    shared(&word).store(next);
    return true;
}

/* Stores a lift in the place of an older lift of the key, or of one that does not wait. */
bool BanExchange::put_lift(uint64_t hash, uint64_t at_ms, bool waits) {
    const uint64_t next = at_ms * 2 + (waits ? kWaits : 0);

    if (Lift *known = find_lift(hash)) {
        const uint64_t word = load(&known->word);

        if (!waits && word / 2 + kLateMs >= at_ms) { return true; }

        if (known->replace(word, hash, next)) { return true; }
    }

    const uint64_t first = shared(&next_lift_).fetch_add(1);

    for (uint32_t i = 0; i < kLiftsMax; i++) {
        Lift &lift = lifts_[(first + i) % kLiftsMax];
        const uint64_t word = load(&lift.word);

        if ((word & kWaits) == 0 && lift.replace(word, hash, next)) { return true; }
    }

    return false;
}

/* Makes all known bans and lifts wait again, but not lifts of keys that are banned now. */
void BanExchange::repeat(const Bans &bans, uint64_t now_ms) {
    for (Lift &lift : lifts_) {
        uint64_t word = load(&lift.word);
        if (word == 0) { continue; }

        const bool is_over
            = (word & kWaits) == 0 && bans.find(load(&lift.hash), now_ms).left_ms != 0;
        (void)shared(&lift.word).compare_exchange_strong(word, is_over ? 0 : word | kWaits);
    }

    for (uint32_t i = 0; i < reported_.size; i++) {
        const uint64_t hash = shared(&words(reported_)[i]).exchange(0);

        if (hash != 0) { (void)put(waiting_, hash); }
    }
}

/* Moves the bans that a call has reported from the waiting ones to the reported ones. */
void BanExchange::remove(const BanCall &call) {
    for (const ToldBan *ban = call.bans; ban < call.bans + call.n; ban++) {
        uint64_t hash = ban->hash;

        if (ban->is_lifted) {
            uint64_t word = ban->word;
            (void)shared(&lifts_[ban->place].word).compare_exchange_strong(word, word & ~kWaits);
        } else if (shared(&words(waiting_)[ban->place]).compare_exchange_strong(hash, 0)) {
            const uint64_t place = shared(&reported_.next).fetch_add(1) % reported_.size;
            shared(&words(reported_)[place]).store(hash);
        }
    }
}

/* Applies three numbers of a reply: sets or lifts a ban, or reports a later event of the key. */
void BanExchange::take(const int64_t *numbers, Bans *bans, const PenaltyRule &rule,
                       uint64_t sent_ms) {
    const uint64_t hash
        = static_cast<uint64_t>(numbers[0]) << 32 | static_cast<uint64_t>(numbers[1]);
    const auto left = static_cast<uint64_t>(numbers[2]);
    const Ban other = {std::min(left / 32, rule.max_ms), static_cast<unsigned>(left % 32)};

    if (other.doublings == kScriptLifted) {
        const uint64_t at_ms = begun_ms(other.left_ms, rule.max_ms, sent_ms);
        const Ban own = bans->find(hash, sent_ms);

        if (own.left_ms != 0 && begun_ms(own, rule, sent_ms) > at_ms + kLateMs) {
            (void)put(waiting_, hash);
        } else {
            bans->lift(hash, sent_ms);
            (void)put_lift(hash, at_ms, false);
        }
    } else if (other.left_ms != 0) {
        Lift *lift = find_lift(hash);
        uint64_t word = lift != nullptr ? load(&lift->word) : 0;

        if (begun_ms(other, rule, sent_ms) + kLateMs < word / 2) {
            (void)shared(&lift->word).compare_exchange_strong(word, word | kWaits);
        } else {
            bans->set(hash, other, rule, sent_ms);
        }
    }
}

bool BanExchange::take_turn(uint64_t now_ms) {
    uint64_t due = load(&turn_ms_);
    return now_ms >= due && shared(&turn_ms_).compare_exchange_strong(due, now_ms + kBanPollMs);
}

uint64_t BanExchange::wait_ms(uint64_t now_ms, bool has_asked) const {
    const uint64_t due = load(&turn_ms_);
    const uint64_t left = now_ms < due ? std::min(due - now_ms, kBanPollMs) : 0;

    /* the worker that sent the last call goes on, so that a node needs one connection */
    return std::max<uint64_t>(left + (has_asked ? 0 : kBanTurnMs), 1);
}

void BanExchange::failed(uint64_t now_ms, uint32_t random) {
    shared(&turn_ms_).store(now_ms + kBanRetryMs - random % (kBanRetryMs / 4));
}

void BanExchange::fill(BanCall *call, const Bans &bans, const PenaltyRule &rule, uint64_t now_ms) {
    const uint64_t ahead_ms = load(&ahead_ms_);

    call->since = shared(&since_).load();
    call->after = shared(&order_).load();
    call->until_ms = ahead_ms != 0 ? now_ms + ahead_ms + kLateMs : 0;
    call->n = 0;
    if (ahead_ms == 0) { return; }

    /* lifts come first, because a ban of the same key in this call began after its lift */
    for (uint32_t i = 0; i < kLiftsMax; i++) {
        uint64_t word = load(&lifts_[i].word);
        const uint64_t end_ms = word / 2 + rule.max_ms;

        if (end_ms <= now_ms) {
            (void)shared(&lifts_[i].word).compare_exchange_strong(word, 0);
        } else if ((word & kWaits) != 0) {
            call->bans[call->n++] = {load(&lifts_[i].hash), end_ms - now_ms, 0, true, i, word};
        }
    }

    for (uint32_t i = 0; i < waiting_.size && call->n < kBansPerCall; i++) {
        uint64_t hash = load(&words(waiting_)[i]);
        if (hash == 0) { continue; }

        const Ban ban = bans.find(hash, now_ms);

        if (ban.left_ms != 0) {
            call->bans[call->n++] = {hash, ban.left_ms, ban.doublings, false, i, 0};
        } else {
            (void)shared(&words(waiting_)[i]).compare_exchange_strong(hash, 0);
        }
    }
}

BanReply BanExchange::read(const BanCall &call, const int64_t *numbers, size_t n, Bans *bans,
                           const PenaltyRule &rule, uint64_t sent_ms) {
    if (!is_reply(call, numbers, n)) { return BanReply::kInvalid; }

    const bool is_lost = (numbers[1] & kLost) != 0;
    const bool is_late = (numbers[1] & kLate) != 0;
    shared(&ahead_ms_).store(static_cast<uint64_t>(numbers[0]) - sent_ms);
    if (!is_late) { remove(call); }

    for (size_t i = kHead; i < n; i += kScriptBanNumbers) {
        take(numbers + i, bans, rule, sent_ms);
    }

    /* another worker may have read more meanwhile */
    uint64_t after = call.after;
    const auto order = static_cast<uint64_t>(numbers[3]);
    const bool is_ours = shared(&order_).compare_exchange_strong(after, order);
    if (is_ours) { shared(&since_).store(static_cast<uint64_t>(numbers[2])); }

    if (is_lost && is_ours) { repeat(*bans, sent_ms); }

    const bool has_more = order > (is_lost ? 0 : call.after) && numbers[3] < numbers[4];
    const bool has_waiting
        = call.until_ms == 0 || is_late || call.n == kBansPerCall || (is_lost && is_ours);
    return has_more || has_waiting ? BanReply::kMore : BanReply::kDone;
}

} // namespace limit_sliding
