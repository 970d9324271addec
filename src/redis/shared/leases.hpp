/* Copyright (C) the limit_sliding authors */

/* Leases: units that were consumed in Redis in advance, for all workers of this node to spend
 * without asking.  A unit is a request of cost 1.  Times, units and safety are as in limiter.hpp;
 * docs/redis.md proves that no window admits more than without leases. */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/policy/claim.hpp"
#include "redis/protocol/remote_state.hpp"
#include "redis/shared/lease.hpp"

namespace limit_sliding {

/* The size of a lease that follows the demand. */
constexpr auto kLeaseAuto = UINT32_MAX;

/* The leases of the keys of a zone.  A unit is spent once at most, and only for its own key, even
 * if processes die; then some units may be lost. */
class alignas(64) Leases {
public:
    /* Makes a table in `memory`: `bytes` long, zeroed, aligned to 64.  Returns null if there is
     * no room for a lease. */
    static Leases *init(void *memory, size_t bytes);

    /* Returns true if keys of a zone with this policy can have leases. */
    static bool can_serve(const Policy &policy);

    /* Returns true if the claim, in such a zone, can spend leased units. */
    static bool can_serve(const Claim &claim);

    /*
     * Returns the units to ask for beyond the `needed` units of waiting requests, for a lease of
     * `size` units, kUnits at most.
     *
     * With kLeaseAuto, a lease has the units that the key would use on this node within a horizon,
     * at the pace since the last call.  The horizon is a 128th of the window, or of its part, but
     * 250 ms at most.  A lease has at most twice the units used since the last call, and at most a
     * 32nd of the units left in Redis.  If a single request came since the last call, the lease has
     * the units of one more such request, if the request came within two horizons of that call, and
     * within four horizons of the call before; else the lease has no units.
     */
    uint32_t want(const Claim &claim, uint32_t size, uint32_t needed, uint64_t now_ms) const;

    /* Adds the `units` beyond the needed ones that a call, sent at `sent_ms`, was granted, and sets
     * the terms from its reply.  Units of the same window and limit stay in the lease. */
    void add(const Claim &claim, const RemoteState &remote, const Verdict &verdict, uint64_t units,
             uint64_t sent_ms, uint64_t now_ms);

    /* Spends the claim's cost, describes the key in *verdict, and notes the origin of the units
     * in claim->state.  Returns false if the lease has too few units, or is over. */
    bool spend(Claim *claim, uint64_t now_ms, Verdict *verdict);

    /* Refunds the claim's cost, which spend() has taken, unless the terms of the units are over. */
    void give_back(const Claim &claim, uint64_t now_ms);

    /* Returns the units left in a lease of the key, even if its window is over. */
    uint32_t held(const Claim &claim) const;

    /* Deletes all units of the claim's key, under any limit, for which Redis was asked until
     * `until_ms`, because Redis has deleted the state of the key. */
    void forget(const Claim &claim, uint64_t until_ms);

private:
    struct Found;

    /* All leases of a key are in one group. */
    using Group = Lease[2];

    Group &group_of(const LeaseOwner &owner) const;
    bool find(const LeaseOwner &owner, uint64_t units, Found *found) const;
    bool choose_slot(const LeaseOwner &owner, uint64_t now_ms, bool patient, Found *found) const;
    uint64_t take_others(const LeaseOwner &owner, const Lease *but, const LeaseTerms &terms);

    uint64_t groups_;
};

} // namespace limit_sliding
