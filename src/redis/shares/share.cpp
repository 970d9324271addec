/* Copyright (C) the limit_sliding authors */

#include "redis/shares/share.hpp"

#include <algorithm>

#include "core/rules/in_flight.hpp"
#include "ngx/event.hpp"

namespace limit_sliding {

namespace {

/* The ms for which units are kept that other workers may need.  Without this time, each request for
 * a key at its limit would need a message. */
constexpr ngx_msec_t kCrowdedMs = 10;

/* The ms for which a worker relies on the override of a key, as nodes rely on other replies. */
constexpr ngx_msec_t kTrustMs = 1000;

/* Returns true if granted units admit the claim.  They were granted under a limit, and a claim with
 * a lower one has to ask. */
bool fits(const Share &share, const Claim &claim) {
    return share.used + claim.cost <= share.granted
           && share.limit_for(claim) >= share.granted_limit;
}

/* Decides a claim by the last reply. */
bool admits_now(const Share &share, const Claim &claim) {
    if (claim.cost != 0) { return fits(share, claim); }

    return terms_of(share.own) != Terms::kBlocked
           && share.others + share.used <= share.limit_for(claim);
}

/* Describes the key to a claim that was decided. */
void decide(const Share &share, Claim &claim, bool admits) {
    RemoteClaim &remote = remote_of(claim);
    Verdict &verdict = remote.verdict;
    remote.own = share.own;
    const Terms terms = terms_of(share.own);
    if (terms == Terms::kBlocked) {
        verdict = blocked_verdict(claim.cost);
    } else {
        const uint64_t held = terms == Terms::kUnlimited ? 0 : share.others + share.used;
        InFlight(*claim.policy, 0, limit_under(share.own, claim.limit))
            .describe(InFlight::make(std::min(held, kNarrowMax), 0), admits ? 0 : claim.cost,
                      &verdict);
    }

    decide_remotely(claim, admits ? Outcome::kAdmitted : Outcome::kRejected, standing_of(terms));
}

void admit(Share &share, Claim &claim, Source source) {
    if (claim.cost != 0) { hold(share, remote_of(claim), claim.cost); }

    remote_of(claim).source = source;
    decide(share, claim, true);
}

/* Sets the time at which kept units are given back, or a share without units is freed. */
void set_timer(Share &share) {
    const bool is_soon = share.crowding() != 0 || share.used + share.granted == 0;
    if (share.timer.timer_set && (!is_soon || share.is_soon)) { return; }

    share.is_soon = is_soon;
    share.least = share.spare();
    restart_timer(share.timer, !is_soon                ? kKeptMs
                               : share.crowding() != 0 ? kCrowdedMs
                                                       : kRefusedMs);
}

void timer_ended(Share &share) {
    if (share.state == ErrandState::kIdle && share.is_known) {
        const uint64_t unused = std::min(share.least, share.spare());
        share.excess = share.is_soon ? std::min(unused, share.crowding()) : unused;
    }

    ask_done(share);
}

/* Keeps the connection of an exiting worker while there are shares. */
void keep_connection(UnitHolder &holder) {
    holder.redis->client.nodes.node->is_kept = !shares_of(holder).empty();
}

} // namespace

void hold(Share &share, RemoteClaim &remote, uint64_t cost) {
    share.used += cost;
    share.least = std::min(share.least, share.spare());
    remote.share = &share;
    remote.held = cost;
}

void reject(const Share &share, Claim &claim, Source source) {
    remote_of(claim).source = source;
    decide(share, claim, false);
}

bool spend(Share &share, Claim &claim) {
    const bool is_fresh = ngx_current_msec - share.own_at < kTrustMs;
    if (claim.cost == 0 || !is_fresh || !fits(share, claim) || !is_valid(*share.holder)) {
        return false;
    }

    admit(share, claim, Source::kLease);
    return true;
}

bool is_refused(const Share &share, const Claim &claim) {
    return ms_until(share.refused_until) > 0 && claim.cost > share.room()
           && claim.limit <= share.parts[0].claim.limit;
}

void tell(Share &share, WaiterList &waiters, bool decides_all) {
    for (Waiter &waiter : waiters) {
        Claim &claim = waiter.claims[0];
        const bool admits = admits_now(share, claim);
        if (!admits && !(decides_all && claim.limit <= share.parts[0].claim.limit)) { continue; }

        if (admits) {
            admit(share, claim, Source::kRedis);
        } else {
            reject(share, claim, Source::kRedis);
        }

        if (!waiter.asked) { share.units--; }

        wake_waiter(waiter, admits ? WaitResult::kAdmitted : WaitResult::kRejected);
    }
}

void set_unknown(Share &share) {
    share.is_known = false;
    share.granted = 0;
}

void fail_unasked(Share &share) {
    for (Waiter &waiter : share.waiters) {
        wake_waiter(waiter, WaitResult::kFailed);
    }

    share.units = 0;
}

bool rest(Ask &ask) {
    Share &share = share_of(ask);
    UnitHolder &holder = *share.holder;
    if (share.state == ErrandState::kPatient && share.units != 0) { withdraw(share); }

    if (share.state != ErrandState::kIdle) { return true; }

    const bool is_repair = !share.is_known || share.used > share.granted || is_old(share);
    if (share.units != 0 || (!share.has_failed && (share.excess != 0 || is_repair))) {
        if (!is_ready(holder)) {
            register_holder(holder);
        } else if (share.units != 0) {
            send(share);
        } else {
            send_patiently(share);
        }
        return true;
    }

    if (share.used != 0 || share.granted != 0 || !share.is_known
        || ms_until(share.refused_until) > 0) {
        if (share.spare() != 0 || (share.used == 0 && share.is_known)) { set_timer(share); }
        return true;
    }

    stop_timer(share.timer);
    ShareList::remove(share);
    keep_connection(holder);
    return false;
}

void init_share(Share &share, UnitHolder &holder) {
    share.holder = &holder;
    share.to = holder.redis->client.nodes.node;
    share.is_known = true;
    init_event<timer_ended>(share.timer, share);
    share.timer.cancelable = 1; /* an exiting worker keeps no units */

    /* shares are in order of this time; the first message is not that of a hot key */
    share.sent = ngx_current_msec - kKeptMs;
    shares_of(holder).push_back(share);
    keep_connection(holder);
}

} // namespace limit_sliding
