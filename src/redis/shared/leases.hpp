/* Copyright (C) the limit_sliding authors */

/* Leases: units of a key's quota that were taken from Redis in advance, to be
 * spent by all workers of this node without asking.  A unit is a request of
 * cost 1.  Times, units and safety are as in limiter.hpp; docs/redis.md proves
 * that no window admits more than it would without leases. */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/policy/claim.hpp"
#include "redis/protocol/remote_verdict.hpp"
#include "redis/shared/lease.hpp"

namespace limit_sliding {

/* The size of a lease that goes by demand. */
constexpr auto kLeaseAuto = UINT32_MAX;

/* Units that Redis granted beyond the needed ones, to be spent here.  A unit
 * is spent once, and for its own key, whatever processes die on the way; some
 * may be lost then. */
class alignas(64) Leases {
public:
    /* Makes a table of `memory`: `bytes` long, zeroed, aligned to 64.  Returns
     * null if there is no room for any. */
    static Leases *init(void *memory, size_t bytes);

    /* True if keys of such a zone can have leases. */
    static bool can_serve(const Policy &policy);

    /* True if units can be leased to such a claim of one. */
    static bool can_serve(const Claim &claim);

    /*
     * Returns how many units to ask for beyond `needed`, which requests wait
     * for.  `size` is the size of a lease, or kLeaseAuto: then as many units as the
     * key's demand on this node since the last time would use up in a 128th of
     * the window (or of its part), or in 250 ms; at most twice the last size, and
     * at most a 32nd of the units left in Redis.  A lone request, which says
     * little, leases as many units again if it came within twice that time of
     * the last one, and within four times of the one before; else none.
     * A lease has at most kUnits.
     */
    uint32_t want(const Claim &claim, uint32_t size, uint32_t needed, uint64_t now_ms) const;

    /* Redis, asked at `sent_ms`, had this key as told, granted `needed` units
     * to requests and `units` beyond them.  They are added to the remaining
     * units of the same window, if the key's limit has not changed. */
    void add(const Claim &claim, const RemoteState &remote, const Verdict &verdict, uint64_t units,
             uint64_t sent_ms, uint64_t now_ms);

    /* Spends the claim's cost.  Returns true and describes the key in *verdict,
     * or false if there are not as many units.  The window that they were of is
     * noted in the claim's state. */
    bool spend(Claim *claim, uint64_t now_ms, Verdict *verdict);

    /* Gives back the unit just spent for a claim, unless its window is over. */
    void give_back(const Claim &claim, uint64_t now_ms);

    /* Returns the units that are left, even if their window is over. */
    uint32_t held(const Claim &claim) const;

    /* Redis has deleted the state of the claim's key: all units of the key are
     * lost, under any limit, unless Redis was asked
     * about them later than at `until_ms`. */
    void forget(const Claim &claim, uint64_t until_ms);

private:
    struct Found;

    /* The leases of a key are all in one of these. */
    using Group = Lease[2];

    Group &group_of(const LeaseOwner &owner) const;
    bool find(const LeaseOwner &owner, uint64_t units, Found *found) const;
    bool choose_slot(const LeaseOwner &owner, uint64_t now_ms, bool patient, Found *found) const;
    uint64_t take_others(const LeaseOwner &owner, const Lease *but, const LeaseTerms &terms);

    uint64_t groups_;
};

} // namespace limit_sliding
