/*
 * Copyright (C) the limit_sliding authors
 */

/* The limits of a place, in groups that are decided together. */

#ifndef LIMIT_SLIDING_HTTP_LIMIT_SET_HPP
#define LIMIT_SLIDING_HTTP_LIMIT_SET_HPP

#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

struct StatusRange {
    ngx_uint_t from;
    ngx_uint_t to;
};

/* A limit_sliding directive. */

struct Limit {
    ZoneConf *zone;
    uint32_t limit; /* 0: none that is static */
    uint32_t cost;

    unsigned evaluated : 1; /* some of these are set */
    unsigned dry_run : 1;
    unsigned after_auth : 1;

    Expression *rates[3]; /* the limit's, the zone's;
                                                    ends with NULL */
    Expression *cost_value;
    ngx_array_t *count_status;

    ngx_str_t policy; /* of the static limit, for
                                                    header fields */
    ngx_str_t digits;

    /* the static rate, until zones are known */
    Rate rate; /* of count 0: not given */
    ngx_str_t rate_word;
    u_char *file;
    ngx_uint_t line;
};

enum Stage { kBeforeAuth = 0, kAfterAuth, kStages };

struct Group {
    Limit *limits;
    ngx_uint_t nlimits;
    ngx_uint_t nclaims;  /* of the next ones, too */
    unsigned single : 1; /* one enforced limit is all */
    unsigned dry_run : 1;
    unsigned leaky : 1;  /* some may delay */
    unsigned remote : 1; /* the last ones are of one
                                                    Redis */
    Group *next;
};

/* The limits of one place of the configuration. */

struct LimitSet {
    ngx_array_t limits;

    /* by limit_sliding_dry_run; the first of a stage, or NULL */
    Group *groups[2][kStages];
};

ngx_int_t init_sets(ngx_conf_t *cf, MainConf *lsmcf);

} // namespace limit_sliding

#endif
