/* Copyright (C) the limit_sliding authors */

#include "redis/shares/claim_units.hpp"

#include "redis/shares/share.hpp"

namespace limit_sliding {

namespace {

Share *find_share(const Claim &claim) {
    return static_cast<Share *>(find_ask(*remote_of(claim).zone->redis, claim.key_hash()));
}

/* Returns the share of the claim's key, perhaps a new one; nullptr: there is no memory. */
Share *get_share(UnitHolder &holder, Claim &claim) {
    Share *share = find_share(claim);
    if (share != nullptr) { return share; }

    share = create_ask<Share>({&claim, 1}, kShare);
    if (share == nullptr) { return nullptr; }

    init_share(*share, holder);
    share_ask(*share, claim.key_hash());
    return share;
}

} // namespace

std::optional<WaitResult> take_units(Claim &claim, Waiter *waiter) {
    UnitHolder *holder = get_holder(*remote_of(claim).zone->redis);
    if (holder == nullptr) { return WaitResult::kFailed; }

    /* kept units may be used while Redis is away, as long as it counts them */
    Share *share = find_share(claim);
    if (share != nullptr && spend(*share, claim)) { return WaitResult::kAdmitted; }

    if (is_away(*holder->redis) || is_in_grace(*holder)) { return WaitResult::kFailed; }

    share = get_share(*holder, claim);
    if (share == nullptr) { return WaitResult::kFailed; }

    if (is_refused(*share, claim)) {
        reject(*share, claim, Source::kCache);
        return WaitResult::kRejected;
    }

    waiter->claims = {&claim, 1};
    add_unit(*share, waiter);
    ask_done(*share);
    return std::nullopt;
}

void note_units(Claim &claim) {
    UnitHolder *holder = claim.cost != 0 ? get_holder(*remote_of(claim).zone->redis) : nullptr;
    Share *share = holder != nullptr ? get_share(*holder, claim) : nullptr;
    if (share == nullptr) { return; }

    hold(*share, remote_of(claim), claim.cost);
    ask_done(*share);
}

bool waits_for_units(const RemoteZone &zone) {
    const UnitHolder *holder = zone.redis->client.holder;
    return zone.policy->is_in_flight() && holder != nullptr && !is_away(*zone.redis)
           && is_in_grace(*holder);
}

const char *why_undecided(const RemoteZone &zone) {
    return waits_for_units(zone) ? "waits for the units of other nodes" : "does not answer";
}

void release_units(RemoteClaim &remote) {
    if (remote.share == nullptr) { return; }

    Share &share = *remote.share;
    remote.share = nullptr;
    share.used -= remote.held;
    if (ngx_exiting) {
        share.excess = share.spare();
        keep_worker(share);
    }

    ask_done(share);
}

} // namespace limit_sliding
