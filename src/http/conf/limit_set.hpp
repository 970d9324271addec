/* Copyright (C) the limit_sliding authors */

/* The limits of a location, in groups that are decided together. */

#pragma once

#include "core/limiter/limiter.hpp"
#include "http/conf/zone_conf.hpp"
#include "ngx/conf.hpp"
#include "ngx/containers.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* A range of response statuses, both ends included. */
struct StatusRange {
    ngx_uint_t from;
    ngx_uint_t to;
};

/* A limit_sliding directive. */
struct Limit {
    ZoneConf *zone;
    uint64_t limit;     /* static limit in requests a window; 0: none */
    uint64_t limit_max; /* largest limit in the zone */
    uint64_t cost;

    Claim claim;     /* initial value of all claims; prepare_claims() sets this and the next two */
    Decide *decide;  /* decides claims with this limit and purpose; nullptr: acquire() does */
    Decide *consume; /* consumes claims while no key of the zone owes; rejects if debts are paid at
                        the zone's limit and not at this one */

    bool settles; /* settled in the log phase: settle or count_status is set */
    /* Reasons to adapt the prepared claim to a request; 0: none. */
    static constexpr uint8_t kValues = 1; /* rates or cost_value are set, or keys may be banned */
    static constexpr uint8_t kDebts = 2;
    static constexpr uint8_t kHolds = 4; /* of a zone with inflight= */
    uint8_t adapts;
    bool dry_run;
    bool after_auth;

    Expression *rates[3]; /* rates to evaluate: the limit's, the zone's; ends with nullptr */
    Expression *cost_value;
    Expression *settle; /* final cost of a request; nullptr: the initial cost */
    Array<StatusRange> count_status;

    /* Header texts of the static limit.  `policy` is empty for windows of the calendar, because
     * they differ in length. */
    ngx_str_t policy;
    ngx_str_t digits;

    /* The parameter, "rate=10r/s" or "inflight=5", and its value; empty: not given.  A static
     * value is parsed once all zones are known. */
    ngx_str_t rate_word;
    ngx_str_t rate_text;
    FileLine where;
};

enum Stage { kBeforeAuth = 0, kAfterAuth, kStages };

/* Limits that are decided together: all are enforced, or all are in dry run. */
struct Group {
    Limit *limits;
    ngx_uint_t nlimits;
    ngx_uint_t nclaims; /* limits of this and the next groups */
    bool single;        /* the stage has one limit, which is enforced and of this node */
    bool dry_run;
    bool leaky;     /* some limits may delay */
    bool is_remote; /* some limits are in Redis: limits that Redis is asked about come last, side
                       by side for each Redis */
    bool is_synced; /* some limits have "sync=" */
    bool is_held;   /* some limits are of inflight= in Redis */
    Group *next;

    Limit *begin() const { return limits; }
    Limit *end() const { return limits + nlimits; }
};

/* The limits set in one http{}, server{} or location{}. */
struct LimitSet {
    Array<Limit> limits;

    /* The first group of each stage, or nullptr.  The first index is limit_sliding_dry_run. */
    Group *groups[2][kStages];

    bool has(const ZoneConf *zone) const {
        for (auto &limit : limits) {
            if (limit.zone == zone) { return true; }
        }

        return false;
    }
};

/* Sorts the limits into groups once all zones are defined, and marks each Redis that must refund
 * units.  Logs an error and returns false if a limit is invalid. */
bool init_sets(ngx_conf_t *cf, const Array<LimitSet *> &sets);

/* Prepare the claims of one limit, and of all limits, once this worker has its counters. */
void prepare_claim(Limit &limit);
void prepare_claims(const Array<LimitSet *> &sets);

} // namespace limit_sliding
