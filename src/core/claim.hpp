/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/policy.hpp"

namespace limit_sliding {

/* What becomes of a zone's slots.  These counters may be split over the
 * workers, so that none writes where another does. */
struct SlotCounts {
    uint64_t used;    /* slots taken into use, which is for good */
    uint64_t evicted; /* live states given up for new keys */
    uint64_t refused; /* new keys refused by WhenFull::kDeny */
};

enum class Outcome {
    kAdmitted = 0,
    kRejected, /* over the limit */
    kRefused,  /* a new key, and the zone is full */
    kUndecided /* set by the caller only: not asked, as another claim rejects
                  the request */
};

/* What a claim is made for.  The core knows the first two; the numbers are
 * those of the script that runs in Redis. */
enum class Purpose {
    kConsume = 0,
    kLook = 1,     /* decide, and consume nothing */
    kGiveBack = 2, /* what was consumed */
    kLease = 3,    /* consume, and lease units beyond that */
    kCharge = 4    /* consume, whatever the limit says: the key may owe */
};

struct Zone;

/* The structs of the module's that a claim leads to. */
struct Limit;
struct RemoteClaim;

/* One limit of a request: what to decide, and how it was decided. */
struct Claim {
    Zone *zone;
    const Policy *policy;
    uint64_t hash;  /* of the key, by this zone's Zone::hash(), xor policy->salt */
    uint64_t limit; /* 1 .. policy->limit_max(), and */
    uint64_t cost;  /* 0 .. kCostMax, unless Redis decides */
    Purpose purpose;
    bool is_void;           /* the caller's: what it was admitted for was rejected, */
    bool is_free;           /* that its request reserves nothing, */
    bool is_own;            /* that what was made ready for the limit of its
                               directive is not for this one, */
    bool records;           /* that its cost is recorded if it rejects, */
    bool is_banned;         /* and that its verdict is a ban of its key */
    const Verdict *verdict; /* if it was decided elsewhere, by Redis for example;
                               else null */
    Limit *directive;       /* the caller's: the core does not look at it */
    RemoteClaim *remote;    /* the same; null: Redis is not asked */
    SlotCounts *counts;     /* where to count what becomes of slots; null: in
                               the zone */

    Outcome outcome; /* set by the call */
    State state;     /* the key's, after the call; if the key was refused that
                        of the key which expires first in its place */

    /* Set if a key that has a ring rejects: the decision finds all that a
     * description needs.  Of other keys retry_after_ms may be known, else it is
     * 0. */
    Verdict rejection;

    /* Returns the hash of the key, by Zone::hash(). */
    uint64_t key_hash() const { return hash ^ policy->salt; }

    /* True if the core decides it, and it consumes what it is admitted. */
    bool consumes() const { return purpose == Purpose::kConsume && verdict == nullptr; }

    /* Makes it one of a policy of the same zone that has another window; `own` is
     * to live as long as the claim. */
    void set_policy(const Policy &own) {
        hash ^= policy->salt ^ own.salt;
        policy = &own;
        is_own = true;
    }

    /* Makes it one that consumes nothing, and rejects while there is no room for one. */
    void reserve_nothing() {
        purpose = Purpose::kLook;
        is_free = true;
        records = false;
        cost = 1;
    }

    /* Makes numbers that Redis allows such as shared memory can decide. */
    void fit_core() {
        limit = std::min(limit, policy->limit_max());
        cost = std::min(cost, kCostMax);
    }

    /* Describes a decided claim: to a request that was rejected, or what an
     * admitted one has left.  A key that has a ring is described to a rejected
     * one as of the decision. */
    Verdict describe(uint64_t now_ms) const;

    /* Returns the length of the present window. */
    uint64_t window_ms(uint64_t now_ms) const;

    /* Returns the verdict's retry_after_ms alone, at little cost. */
    uint64_t retry_after_ms(uint64_t now_ms) const {
        return verdict == nullptr && outcome == Outcome::kRejected && rejection.retry_after_ms != 0
                   ? rejection.retry_after_ms
                   : find_retry_after_ms(now_ms);
    }

    /* Does so if it is not known yet. */
    uint64_t find_retry_after_ms(uint64_t now_ms) const;

    /* Returns the verdict's delay_ms alone, at little cost: how long a decided
     * claim holds its request back.  0 if it was not admitted to a queue, or
     * consumed nothing. */
    uint64_t delay_ms(uint64_t now_ms) const;

    /* Forgets the history of the claim's key. */
    void forget(uint64_t now_ms) const;
};

} // namespace limit_sliding
