/*
 * Copyright (C) the limit_sliding authors
 */

/* The zones of a configuration. */

#ifndef LIMIT_SLIDING_HTTP_ZONE_HPP
#define LIMIT_SLIDING_HTTP_ZONE_HPP

#include "core/limiter.hpp"
#include "core/stats.hpp"
#include "http/expression.hpp"
#include "http/parameter.hpp"
#include "ngx/ngx.hpp"
#include "redis/client.hpp"

namespace limit_sliding {

struct MainConf;

/* What the keys of a zone are. */

enum class KeyKind {
    kTexts = 0,
    kAddresses, /* $binary_remote_addr */
    kClients    /* $limit_sliding_client */
};

/* A zone as this configuration defines it; lives as long as its cycle. */

struct ZoneConf {
    ngx_str_t name;
    ngx_str_t quoted; /* for a header */
    Expression key;
    Policy policy;
    uint32_t limit;   /* 0: rate is a variable */
    Expression *rate; /* NULL: limit is static */
    ngx_str_t rate_text;
    ngx_flag_t top;
    KeyKind keys;
    ngx_flag_t variable; /* rates of some places are */

    ngx_shm_zone_t *shm_zone; /* NULL: named, not defined */
    Zone *zone;               /* in shared memory */
    Aside aside;              /* there, too */

    u_char *file; /* of the first mention */
    ngx_uint_t line;

    Redis *redis; /* NULL: of one node */
    RemoteZone remote;

    ngx_str_t restarted; /* why a reload empties it */

    /* the longest prefixes that any place cuts clients to, for the API */
    ngx_uint_t client_ipv4;
    ngx_uint_t client_ipv6;
    unsigned clients : 1; /* they are known */

    /* this worker's */
    Counters *counters;
    Sampler sampler;
    ngx_msec_t log_after;
    ngx_uint_t log_omitted;
};

ZoneConf *get_zone(ngx_conf_t *cf, ngx_str_t *name);
ngx_int_t add_zone(ngx_conf_t *cf, ZoneConf *zone, size_t size);
ngx_int_t init_zones(ngx_conf_t *cf, MainConf *lsmcf);

} // namespace limit_sliding

#endif
