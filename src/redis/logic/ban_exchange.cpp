/* Copyright (C) the limit_sliding authors */

#include "redis/logic/ban_exchange.hpp"

#include <algorithm>

#include "core/atomics.hpp"

namespace limit_sliding {

namespace {

/* Lifts come from administrators. */
constexpr uint32_t kLiftsMax = 64;

/* Places that are tried for a word, before there is said to be none. */
constexpr uint32_t kTries = 64;

/* For how long a lift is known at least.  Redis remembers it up to the end of the ban, if
 * it knows that. */
constexpr uint64_t kLiftMs = 60000;

/* For how long after it was sent a call's bans are taken: no ban ends so much later on
 * another node. */
constexpr uint64_t kLateMs = 500;

/* The longest ban that a reply may tell of: a year, and a day more for clocks. */
constexpr int64_t kLeftMax = int64_t{367} * 24 * 60 * 60 * 1000;

/* Numbers of a reply before those of bans. */
constexpr size_t kHead = 5;

/* Bits of the second one. */
constexpr int64_t kLost = 1;
constexpr int64_t kLate = 2;

/* A time in ms, or an order, which is a little more, that doubles have room for. */
constexpr int64_t kTimeMax = int64_t{1} << 52;

bool is_time(int64_t number) { return number >= 0 && number < kTimeMax; }

bool is_half(int64_t number) { return number >= 0 && number <= UINT32_MAX; }

bool is_left(int64_t number) { return number > 0 && number / 32 <= kLeftMax; }

/* Returns true if these are the numbers of a reply to the call. */
bool is_reply(const BanCall &call, const int64_t *numbers, size_t n) {
    if (n < kHead || (n - kHead) % kScriptBanNumbers != 0) { return false; }

    /* a node that was told nothing was told nothing that is lost */
    const int64_t flags = numbers[1];
    if (flags < 0 || flags > (kLost | kLate) || ((flags & kLost) != 0 && call.since == 0)) {
        return false;
    }

    if (!is_time(numbers[0]) || !is_time(numbers[2]) || !is_time(numbers[3]) || !is_time(numbers[4])
        || numbers[3] > numbers[4]) {
        return false;
    }

    for (size_t i = kHead; i < n; i += kScriptBanNumbers) {
        if (!is_half(numbers[i]) || !is_half(numbers[i + 1]) || !is_left(numbers[i + 2])) {
            return false;
        }
    }

    return true;
}

/* Sets a ban, or lifts it, as Redis tells of it by three numbers. */
void take_ban(const int64_t *numbers, Bans *bans, const PenaltyRule &rule, uint64_t sent_ms) {
    const uint64_t hash
        = static_cast<uint64_t>(numbers[0]) << 32 | static_cast<uint64_t>(numbers[1]);
    const auto left = static_cast<uint64_t>(numbers[2]);
    const auto doublings = static_cast<unsigned>(left % 32);

    if (doublings == kScriptLifted) {
        bans->lift(hash, sent_ms);
    } else if (left / 32 != 0) {
        bans->set(hash, {std::min(left / 32, rule.max_ms), doublings}, rule, sent_ms);
    }
}

} // namespace

BanExchange *BanExchange::init(void *memory, size_t bytes) {
    auto *exchange = static_cast<BanExchange *>(memory);
    const auto words = static_cast<uint32_t>((bytes - sizeof(BanExchange)) / sizeof(uint64_t));
    const uint32_t half = (words - kLiftsMax) / 2;

    exchange->lifted_ = {0, 0, kLiftsMax};
    exchange->waiting_ = {0, kLiftsMax, half};
    exchange->told_ = {0, kLiftsMax + half, half};

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

void BanExchange::remember(uint64_t hash) {
    const uint64_t place = shared(&told_.next).fetch_add(1) % told_.size;

    shared(&words(told_)[place]).store(hash);
}

/* Has all bans told again that are known to have been. */
void BanExchange::repeat() {
    for (uint32_t i = 0; i < told_.size; i++) {
        const uint64_t hash = shared(&words(told_)[i]).exchange(0);

        if (hash != 0) { (void)put(waiting_, hash); }
    }
}

/* Removes what a call has told. */
void BanExchange::remove(const BanCall &call) {
    for (const ToldBan *ban = call.bans; ban < call.bans + call.n; ban++) {
        const Ring &ring = ban->is_lifted ? lifted_ : waiting_;
        uint64_t hash = ban->hash;

        if (shared(&words(ring)[ban->place]).compare_exchange_strong(hash, 0) && !ban->is_lifted) {
            remember(hash);
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

    /* the worker that has asked goes on if it can, and so needs one connection */
    return std::max<uint64_t>(left + (has_asked ? 0 : kBanTurnMs), 1);
}

void BanExchange::failed(uint64_t now_ms, uint32_t random) {
    shared(&turn_ms_).store(now_ms + kBanRetryMs - random % (kBanRetryMs / 4));
}

void BanExchange::fill(BanCall *call, const Bans &bans, uint64_t now_ms) {
    const uint64_t ahead_ms = load(&ahead_ms_);

    call->since = shared(&since_).load();
    call->after = shared(&order_).load();
    call->until_ms = ahead_ms != 0 ? now_ms + ahead_ms + kLateMs : 0;
    call->n = 0;
    if (ahead_ms == 0) { return; }

    /* lifts come first: a ban that is told with one began after it */
    for (uint32_t i = 0; i < lifted_.size; i++) {
        const uint64_t hash = load(&words(lifted_)[i]);

        if (hash != 0) { call->bans[call->n++] = {hash, kLiftMs, 0, true, i}; }
    }

    for (uint32_t i = 0; i < waiting_.size && call->n < kBansPerCall; i++) {
        uint64_t hash = load(&words(waiting_)[i]);
        if (hash == 0) { continue; }

        const Ban ban = bans.find(hash, now_ms);

        if (ban.left_ms != 0) {
            call->bans[call->n++] = {hash, ban.left_ms, ban.doublings, false, i};
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
        take_ban(numbers + i, bans, rule, sent_ms);
    }

    /* another worker may have been told more meanwhile */
    uint64_t after = call.after;
    const auto order = static_cast<uint64_t>(numbers[3]);
    const bool is_ours = shared(&order_).compare_exchange_strong(after, order);
    if (is_ours) { shared(&since_).store(static_cast<uint64_t>(numbers[2])); }

    if (is_lost && is_ours) { repeat(); }

    const bool has_more = order > (is_lost ? 0 : call.after) && numbers[3] < numbers[4];
    const bool has_waiting
        = call.until_ms == 0 || is_late || call.n == kBansPerCall || (is_lost && is_ours);
    return has_more || has_waiting ? BanReply::kMore : BanReply::kDone;
}

} // namespace limit_sliding
