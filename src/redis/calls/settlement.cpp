/* Copyright (C) the limit_sliding authors */

#include "redis/calls/settlement.hpp"

#include <algorithm>

#include "ngx/event.hpp"
#include "redis/protocol/claim_hash.hpp"
#include "redis/shared/refusals.hpp"

namespace limit_sliding {

namespace {

/* Memory of a worker's settlements, beyond which they are lost: this bounds the memory
 * of waiting settlements while Redis is slow.  There is room for 10,000 of them with short keys. */
constexpr size_t kSettlementBytesMax = 8 << 20;

/* Settlements that may be due or in calls.  The others wait behind them, so
 * that a request's ask does not: it is due behind these at most, and they take
 * Redis a few milliseconds. */
constexpr size_t kOutMax = 256;

/* Returns a new ask for the claim, which is due in its turn; nullptr: it cannot be made. */
Ask *create_settlement(Redis &redis, Claim &claim) {
    Client &client = redis.client;
    Settling &settling = client.settling;
    Ask *ask = settling.bytes < kSettlementBytesMax ? create_ask(redis, {&claim, 1}) : nullptr;
    if (ask == nullptr) { return nullptr; }

    if (!client.nodes.is_worth(ask->slot)) {
        ngx_free(ask);
        return nullptr;
    }

    ask->settles = true;
    ask->parts[0].taken = remote_of(claim).taken;
    settling.nasks++;
    settling.bytes += waiting_bytes(*ask);
    if (settling.nout < kOutMax) {
        settling.nout++;
        make_due(*ask);
    } else {
        waiting_of(settling).push_back(*ask);
    }
    return ask;
}

/* Has more units of the ask settled in time, which an exiting worker waits for. */
void add_units(Ask &ask, uint64_t units) {
    const Settings &settings = ask.redis->settings;
    Settling &settling = ask.redis->client.settling;
    ask.unsettled += units;
    ask.units = 1;
    settling.units += units;
    settling.until = ngx_current_msec + settings.connect_timeout + settings.timeout;
    settling.timer.cancelable = 0;
    if (!settling.timer.timer_set) {
        ngx_add_timer(&settling.timer, settings.connect_timeout + settings.timeout);
    }
}

/* Has the timer go on while there is something to wait for. */
void check_time(Client &client) {
    Settling &settling = client.settling;
    auto left = static_cast<ngx_msec_int_t>(settling.until - ngx_current_msec);
    if (settling.nasks && left > 0) {
        ngx_add_timer(&settling.timer, static_cast<ngx_msec_t>(left));
    }
}

/* Makes of a claim that was admitted one that settles the difference of its
 * costs.  Returns false if Redis is not to be told. */
bool make_settlement(const Claim &claim, int64_t difference, Claim *settled) {
    const RemoteClaim &remote = remote_of(claim);
    bool is_leased = remote.source == Source::kLease;
    bool is_asked = is_leased || remote.source == Source::kRedis;
    if (difference == 0 || !is_asked || remote.own.is_unlimited()) { return false; }

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

/* Returns as many units of the cost as there is room for. */
uint64_t add_settlement(Redis &redis, const Claim &settled) {
    Claim claim = settled;
    claim.cost = 0;

    bool is_charge = claim.purpose == Purpose::kCharge;
    uint64_t hash = claim_hash(&claim, 1);
    Ask *ask = is_charge ? find_ask(redis, hash) : nullptr;
    if (ask == nullptr) {
        ask = create_settlement(redis, claim);
        if (ask == nullptr) { return 0; }

        if (is_charge) { share_ask(*ask, hash); }
    }

    uint64_t added = std::min(settled.cost, kSettledMax - units_of(*ask));
    if (added) { add_units(*ask, added); }
    return added;
}

} // namespace

void settle(const Claim &claim, int64_t difference) {
    Claim settled;
    if (!make_settlement(claim, difference, &settled)) { return; }

    Redis &redis = *remote_of(claim).zone->redis;
    uint64_t taken = is_away(redis) ? 0 : add_settlement(redis, settled);
    count_unsettled(redis.client, settled.cost - taken);
}

void init_settling(Client &client) {
    waiting_of(client.settling).init();
    init_event<check_time>(client.settling.timer, client);
}

void end_settling(Client &client) { count_unsettled(client, client.settling.units); }

void take_units(Ask &ask) {
    if (!ask.settles) { return; }

    ask.parts[0].claim.cost = ask.unsettled;
    ask.unsettled = 0;
}

void units_settled(Ask &ask, uint64_t lost) {
    if (!ask.settles) { return; }

    Client &client = ask.redis->client;
    AskPart &part = ask.parts[0];
    count_unsettled(client, lost);
    client.settling.units -= part.claim.cost;
    part.claim.cost = 0;

    /* it may be admitted again */
    if (part.claim.purpose == Purpose::kGiveBack) { part.zone->refusals->forget(part.claim); }
}

} // namespace limit_sliding
