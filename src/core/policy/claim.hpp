/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/policy/policy.hpp"

namespace limit_sliding {

/* Counters of new keys in the slots of a zone.  Each worker may have its own counters, so that no
 * two workers write to one cache line. */
struct SlotCounts {
    uint64_t used;    /* slots taken into use; a slot stays in use forever */
    uint64_t evicted; /* live states evicted for new keys */
    uint64_t refused; /* requests rejected because the zone or its ledger is full */
};

enum class Outcome {
    kAdmitted = 0,
    kRejected, /* over the limit */
    kRefused,  /* a new key, and the zone is full */
    kUndecided /* set by the caller: another claim has rejected the request already */
};

/* The purpose of a claim.  The core knows the first two; Redis gets all numbers as arguments of
 * its script. */
enum class Purpose : uint8_t {
    kConsume = 0,
    kLook = 1,     /* decide without consuming */
    kGiveBack = 2, /* refund consumed units */
    kLease = 3,    /* consume, and lease further units */
    kCharge = 4    /* consume; the key owes units beyond the limit */
};

struct Claim;
struct Zone;
class Debts;
struct Hold;

/* Who decides a claim, or has decided it, and where its verdict is. */
enum class Standing : uint8_t {
    kHere = 0,  /* the memory of this node; describe() computes the verdict from the state */
    kOwing,     /* the same, and the key owes: `rejection` */
    kGiven,     /* Redis, a lease, a refusal or on_error: `*verdict` */
    kGivenLate, /* Redis; given_verdict() computes `*verdict`, because few requests read it */
    kBanned,    /* a ban of the key: `*verdict` */
    kBlocked,   /* the limit "0": `*verdict` */
    kUnlimited, /* the limit "off": `*verdict` */
    kUnasked    /* nobody, because another claim rejects the request: `*verdict` */
};

/* A function that decides one claim, with or without consuming (history_decision.hpp). */
using Decide = void(Claim *claim, uint64_t now_ms);

/* Structs of src/http and src/redis.  The core only carries pointers to them. */
struct Limit;
struct RemoteClaim;

/* One limit of one request: the key, the cost and, once decided, the outcome.  The caller sets the
 * fields before `outcome`.  If the claim is_here(), acquire() sets the others, and `standing` if
 * `debts` is not null. */
struct Claim {
    Zone *zone;
    const Policy *policy;
    uint64_t hash;  /* Zone::hash() of the key, xor policy->salt */
    uint64_t limit; /* requests a window, 1 .. policy->limit_max() */
    uint64_t cost;  /* units; 0 .. kCostMax, unless Redis decides */
    Purpose purpose;
    bool is_void; /* set by the caller: admitted for a request that was rejected later */
    bool is_own;  /* the limit or window differs from the directive's, so functions prepared for
                     the directive do not apply */
    bool records; /* the cost is recorded even if the claim rejects */
    Standing standing;
    const Verdict *verdict; /* valid unless the claim is_here() */
    Limit *directive;       /* of the caller; the core does not read it */
    RemoteClaim *remote;    /* of the caller; null if the claim does not ask Redis */
    SlotCounts *counts;     /* statistics of slots; null: the counters in the zone */
    Debts *debts;           /* debts of the zone; null: no key of the zone can owe */
    Hold *hold;             /* of a zone with inflight=, if the claim consumes; else null */

    Outcome outcome; /* set by the decision */
    State state;     /* state of the key after the decision; with a ring, the mark of the admission;
                        if refused, the ms until the first slot expires */

    /* The verdict of a rejection by a ring, or of a key that owes.  For other keys only
     * `retry_after_ms` is valid, and 0 if it was not computed. */
    Verdict rejection;

    /* Returns Zone::hash() of the key. */
    uint64_t key_hash() const { return hash ^ policy->salt; }

    /* Returns true if the memory of this node decides the claim, or has decided it. */
    bool is_here() const { return standing <= Standing::kOwing; }

    /* Decides the claim by a verdict, which must live as long as the claim. */
    void decide(Standing by, Outcome how, const Verdict &given) {
        standing = by;
        outcome = how;
        verdict = &given;
    }

    /* Returns the verdict of a claim that is not decided here. */
    const Verdict &given_verdict() const {
        if (standing == Standing::kGivenLate) { complete(*this); }
        return *verdict;
    }

    /* Computes a late verdict, unless that was done.  The client of Redis sets the function. */
    inline static void (*complete)(const Claim &claim) = nullptr;

    /* Returns true if the core decides the claim and consumes its cost. */
    bool consumes() const { return purpose == Purpose::kConsume && is_here(); }

    /* Returns the units of a debt that each window pays: the limit of the key's override, else the
     * zone's limit.  The limit of the directive applies only if the zone has none. */
    uint64_t pace() const {
        return is_own ? limit : policy->zone_limit != 0 ? policy->zone_limit : limit;
    }

    /* Moves the claim to a policy of the same zone with another window.  The policy must live as
     * long as the claim. */
    void set_policy(const Policy &own) {
        hash ^= policy->salt ^ own.salt;
        policy = &own;
        is_own = true;
    }

    /* Turns the claim into one that consumes nothing, and rejects if not even one request fits. */
    void reserve_nothing() {
        purpose = Purpose::kLook;
        records = false;
        cost = 1;
    }

    /* Caps the limit and the cost from Redis at the maxima of shared memory. */
    void fit_core() {
        limit = std::min(limit, policy->limit_max());
        cost = std::min(cost, kCostMax);
    }

    /* Describes a decided claim: the wait of a rejected request, or the remaining units of an
     * admitted one.  A rejection by a ring is described as of the decision. */
    Verdict describe(uint64_t now_ms) const;

    /* Returns the length of the present window in ms. */
    uint64_t window_ms(uint64_t now_ms) const;

    /* Returns retry_after_ms of the verdict, without the cost of describe(). */
    uint64_t retry_after_ms(uint64_t now_ms) const;

    /* Returns the wait in ms if the decision has computed it, else 0. */
    uint64_t known_retry_after_ms() const {
        return is_here() && outcome == Outcome::kRejected ? rejection.retry_after_ms : 0;
    }

    /* Returns the delay by a leaky bucket in ms; 0 if the claim consumed nothing. */
    uint64_t delay_ms(uint64_t now_ms) const;

    /* Deletes the history and the debt of the key. */
    void forget(uint64_t now_ms) const;
};

} // namespace limit_sliding
