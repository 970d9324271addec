/*
 * Copyright (C) the limit_sliding authors
 */

/* The module's configurations: main, and of locations. */

#ifndef LIMIT_SLIDING_HTTP_CONFIGURATION_HPP
#define LIMIT_SLIDING_HTTP_CONFIGURATION_HPP

#include "http/limit_set.hpp"
#include "http/module.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

struct MainConf {
    ngx_array_t zones;   /* of pointers to zones */
    ngx_array_t sets;    /* of pointers to sets */
    ngx_array_t redises; /* of pointers to them */

    /* used anywhere */
    unsigned after_auth : 1;
    unsigned count_status : 1;
    unsigned header_filter : 1;
};

/* LocConf.headers */

constexpr auto kHeaderRetryAfter = 0x01;

constexpr auto kHeaderDraft = 0x02;

constexpr auto kHeaderX = 0x04;

/* Prefixes of $limit_sliding_client by default. */

constexpr auto kIpv4Prefix = 32;

constexpr auto kIpv6Prefix = 64;

struct LocConf {
    LimitSet *set; /* NULL: off */
    Group *groups[kStages];
    ngx_uint_t status_code;
    ngx_uint_t log_level; /* 0: off */
    ngx_msec_t log_every;
    ngx_flag_t dry_run;
    ngx_uint_t headers;
    ngx_uint_t client_ipv4; /* prefix, in bits */
    ngx_uint_t client_ipv6;
    ngx_flag_t api_write; /* unset: no API here */
};

} // namespace limit_sliding

#endif
