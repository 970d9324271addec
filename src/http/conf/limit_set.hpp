/* Copyright (C) the limit_sliding authors */

/* The limits of a place, in groups that are decided together. */

#pragma once

#include "core/limiter/limiter.hpp"
#include "http/conf/zone.hpp"
#include "ngx/array.hpp"
#include "ngx/conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Statuses of responses, both ends included. */
struct StatusRange {
    ngx_uint_t from;
    ngx_uint_t to;
};

/* A limit_sliding directive. */
struct Limit {
    ZoneConf *zone;
    uint64_t limit;     /* 0: none that is static */
    uint64_t limit_max; /* the zone's */
    uint64_t cost;

    Claim claim;     /* what all claims on it begin as; set by prepare_claims() */
    Decide *decide;  /* decides claims that keep this limit and purpose; nullptr:
                        acquire() has to; set there, too */
    Decide *consume; /* the same for claims that consume, while no key of the zone owes; rejects
                        if the zone has another limit, at which debts are paid */

    bool settles; /* when its request has ended: settle or count_status are set */
    /* Claims are adapted to these; 0: the prepared claim fits all requests. */
    static constexpr uint8_t kValues = 1; /* rates or cost_value are set, or keys may be banned */
    static constexpr uint8_t kDebts = 2;
    uint8_t adapts;
    bool dry_run;
    bool after_auth;

    Expression *rates[3]; /* the limit's, the zone's; ends with nullptr */
    Expression *cost_value;
    Expression *settle; /* what a request turned out to cost; nullptr: its cost */
    Array<StatusRange> count_status;

    /* Texts of the static limit for header fields; the policy is not that of
     * windows of a calendar, whose lengths differ. */
    ngx_str_t policy;
    ngx_str_t digits;

    /* The rate, "rate=10r/s" and "10r/s"; empty: not given.  A static one is kept until
     * all zones are known. */
    ngx_str_t rate_word;
    ngx_str_t rate_text;
    FileLine where;
};

enum Stage { kBeforeAuth = 0, kAfterAuth, kStages };

/* Limits that are decided together: all of them enforced, or none. */
struct Group {
    Limit *limits;
    ngx_uint_t nlimits;
    ngx_uint_t nclaims; /* of this and the next groups */
    bool single;        /* one enforced limit of this node is all */
    bool dry_run;
    bool leaky;  /* some may delay */
    bool remote; /* some are of Redis; those that one decides come last, beside each other */
    bool synced; /* some are of zones with "sync=" */
    Group *next;

    Limit *begin() const { return limits; }
    Limit *end() const { return limits + nlimits; }
};

/* The limits of one place of the configuration. */
struct LimitSet {
    Array<Limit> limits;

    /* The first group of each stage, or nullptr, by limit_sliding_dry_run. */
    Group *groups[2][kStages];

    bool has(const ZoneConf *zone) const {
        for (auto &limit : limits) {
            if (limit.zone == zone) { return true; }
        }

        return false;
    }
};

/* Sorts the limits into groups once all zones are defined, and tells Redises which
 * have to give units back.  Logs what is wrong, and returns false. */
bool init_sets(ngx_conf_t *cf, const Array<LimitSet *> &sets);

/* Prepares the claims of all limits, once this worker has its counters. */
void prepare_claims(const Array<LimitSet *> &sets);

} // namespace limit_sliding
