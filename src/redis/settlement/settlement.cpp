/* Copyright (C) the limit_sliding authors */

#include "redis/settlement/settlement.hpp"

#include <algorithm>

#include "ngx/event.hpp"
#include "redis/asks/script_call.hpp"
#include "redis/shared/refusals.hpp"

namespace limit_sliding {

namespace {

/* The most bytes of a worker's settlements: room for 10,000 of them with short keys.  The bound
 * matters while Redis is slow.  Units of further settlements are lost. */
constexpr size_t kSettlementBytesMax = 8 << 20;

/* A settlement of one part.  The cost of the part's claim is the number of units in the call under
 * way. */
struct Settlement : Ask {
    uint64_t unsettled; /* units of the next call */
};

/* Returns the units of the call under way and of the next one. */
uint64_t units_of(const Settlement &settlement) {
    return settlement.parts[0].claim.cost + settlement.unsettled;
}

size_t bytes_of(const Settlement &settlement) {
    return sizeof(Settlement) + sizeof(AskPart) + settlement.parts[0].key.len;
}

/* Ends a call.  If no more units came meanwhile, the settlement is over. */
void call_done(Settlement &settlement) {
    if (settlement.units == 0) { settlement.redis->client.settling.bytes -= bytes_of(settlement); }

    ask_done(settlement);
}

bool join(ErrandCall &call, Errand &errand) {
    if (!join_call(call, errand)) { return false; }

    auto &settlement = static_cast<Settlement &>(errand);
    settlement.parts[0].claim.cost = settlement.unsettled;
    settlement.unsettled = 0;
    return true;
}

void returned(Errand &errand) {
    auto &settlement = static_cast<Settlement &>(errand);
    settlement.unsettled = units_of(settlement);
    settlement.parts[0].claim.cost = 0;
    settlement.units = 1;
}

/* Redis has settled the units of the call, except for lost units. */
void take_answer(Ask &ask, const Answer &answer, ngx_msec_t) {
    Client &client = ask.redis->client;
    AskPart &part = ask.parts[0];
    count_unsettled(client, answer.parts[0].lost);
    client.settling.units -= part.claim.cost;
    part.claim.cost = 0;

    /* the key may be admitted again */
    if (part.claim.purpose == Purpose::kGiveBack) { part.zone->refusals->forget(part.claim); }

    call_done(static_cast<Settlement &>(ask));
}

void failed(Errand &errand, Failure failure) {
    auto &settlement = static_cast<Settlement &>(errand);
    const bool is_unsent = failure == Failure::kUnsent;
    if (is_unsent) { settlement.units = 0; }

    Client &client = settlement.redis->client;
    uint64_t &units = is_unsent ? settlement.unsettled : settlement.parts[0].claim.cost;
    count_unsettled(client, units);
    client.settling.units -= units;
    units = 0;
    call_done(settlement);
}

constexpr AskKind kSettlement
    = {{join, call_script, script_answered, failed, returned, send_patiently}, take_answer};

/* Returns a new settlement of the claim, and sends it.  nullptr: there is no room, or the node of
 * the claim is known not to answer. */
Settlement *create_settlement(Redis &redis, Claim &claim) {
    Settling &settling = redis.client.settling;
    auto *settlement = settling.bytes < kSettlementBytesMax
                           ? create_ask<Settlement>({&claim, 1}, kSettlement)
                           : nullptr;
    if (settlement == nullptr || if_worth(*settlement) == nullptr) { return nullptr; }

    settlement->parts[0].taken = remote_of(claim).taken;
    settling.bytes += bytes_of(*settlement);
    send_patiently(*settlement);
    return settlement;
}

/* Sets the timer again while an exiting worker waits for asks. */
void check_time(Client &client) {
    Settling &settling = client.settling;
    const ngx_msec_int_t left = ms_until(settling.until);
    if (settling.nasks && left > 0) {
        ngx_add_timer(&settling.timer, static_cast<ngx_msec_t>(left));
    }
}

/* Sets *settled to a claim that charges or refunds the difference between the final cost of an
 * admitted claim and its reserved cost.  Returns false if Redis needs no settlement: leased units
 * are refunded to the lease at once. */
bool make_settlement(const Claim &claim, int64_t difference, Claim *settled) {
    const RemoteClaim &remote = remote_of(claim);
    bool is_leased = remote.source == Source::kLease;
    bool is_asked = is_leased || remote.source == Source::kRedis;
    if (difference == 0 || !is_asked || claim.standing == Standing::kUnlimited) { return false; }

    *settled = claim;
    if (remote.asked_limit) { settled->limit = remote.asked_limit; }

    settled->purpose = difference < 0 ? Purpose::kGiveBack : Purpose::kCharge;
    settled->cost = difference < 0 ? -static_cast<uint64_t>(difference) : difference;
    if (!is_leased || difference > 0) {
        ask_window(*settled);
        return true;
    }

    remote.zone->leases->give_back(*settled, ngx_current_msec);
    return false;
}

/* Adds the claim's cost to a settlement, as far as there is room.  Returns the added units. */
uint64_t add_settlement(Redis &redis, const Claim &settled) {
    Claim claim = settled;
    claim.cost = 0;

    bool is_charge = claim.purpose == Purpose::kCharge;
    uint64_t hash = ask_hash(&claim, 1);
    Ask *shared = is_charge ? find_ask(redis, hash) : nullptr;
    auto *settlement = static_cast<Settlement *>(shared);
    if (shared == nullptr || shared->kind != &kSettlement) {
        settlement = create_settlement(redis, claim);
        if (settlement == nullptr) { return 0; }

        if (is_charge) { share_ask(*settlement, hash); }
    }

    const uint64_t added = std::min(settled.cost, kSettledMax - units_of(*settlement));
    if (added == 0) { return 0; }

    settlement->unsettled += added;
    settlement->units = 1;
    redis.client.settling.units += added;
    keep_worker(*settlement);
    return added;
}

} // namespace

void count_unsettled(const Client &client, uint64_t units) {
    if (units) { add(&client.calls->unsettled, units); }
}

void settle_redis(const Claim &claim, int64_t difference) {
    Redis &redis = *remote_of(claim).zone->redis;
    if (remote_of(claim).source == Source::kFallback) {
        /* Redis does not know of the claim */
        count_unsettled(redis.client, std::max<int64_t>(difference, 0));
        return;
    }

    Claim settled;
    if (!make_settlement(claim, difference, &settled)) { return; }

    uint64_t taken = is_away(redis) ? 0 : add_settlement(redis, settled);
    count_unsettled(redis.client, settled.cost - taken);
}

void init_settling(Client &client) { init_event<check_time>(client.settling.timer, client); }

void end_settling(Client &client) { count_unsettled(client, client.settling.units); }

} // namespace limit_sliding
