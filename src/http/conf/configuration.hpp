/* Copyright (C) the limit_sliding authors */

/* The module's configurations of http{} and of each location. */

#pragma once

#include "http/conf/limit_set.hpp"
#include "http/conf/zone_conf.hpp"
#include "http/module.h"
#include "ngx/containers.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

class UsageName;

struct MainConf {
    Zones zones;
    Array<LimitSet *> sets;
    Array<Redis *> redises;
    const UtcOffsets *local_offsets;   /* nullptr: no zone has "calendar=local" */
    ngx_int_t context_index;           /* index of the variable that holds a request's Context */
    ngx_int_t usage_index = NGX_ERROR; /* that of its usage; NGX_ERROR: no location reads usages */
    ZoneClients api_clients;           /* longest prefixes in locations of the API */

    ngx_uint_t needs; /* the mask of module.h */
    bool charges;     /* "limit_sliding_api write=on" */
    bool owes;        /* any key may be charged: by the API, or by Lua, as ngx_lua is loaded */
};

/* Bits of LocConf::headers. */
constexpr uint8_t kHeaderRetryAfter = 0x01;
constexpr uint8_t kHeaderDraft = 0x02;
constexpr uint8_t kHeaderX = 0x04;

/* Default prefixes of $limit_sliding_client, in bits. */
constexpr ngx_uint_t kIpv4Prefix = 32;
constexpr ngx_uint_t kIpv6Prefix = 64;

/* Members have NGINX's value for "unset" until they are set or inherited. */
struct LocConf {
    LimitSet *set = static_cast<LimitSet *>(NGX_CONF_UNSET_PTR); /* nullptr: no limits */
    Group *groups[kStages] = {};
    ngx_uint_t status_code = NGX_CONF_UNSET_UINT;
    ngx_uint_t log_level = NGX_CONF_UNSET_UINT; /* 0: off */
    ngx_msec_t log_every = NGX_CONF_UNSET_MSEC; /* ms between lines of a zone; 0: all lines */
    ngx_flag_t dry_run = NGX_CONF_UNSET;
    ngx_uint_t headers = NGX_CONF_UNSET_UINT;
    ngx_uint_t client_ipv4 = NGX_CONF_UNSET_UINT; /* prefix, in bits */
    ngx_uint_t client_ipv6 = NGX_CONF_UNSET_UINT;
    UsageName *usage = static_cast<UsageName *>(NGX_CONF_UNSET_PTR); /* nullptr: off */
    LogPace missing_usage = {}; /* of lines about responses without the name, of this worker */
    ngx_flag_t api_write = NGX_CONF_UNSET; /* stays unset without the API */
    FileLine api_where = {};
};

inline MainConf &main_conf(ngx_conf_t *cf) {
    return *static_cast<MainConf *>(
        ngx_http_conf_get_module_main_conf(cf, ngx_http_limit_sliding_module));
}

inline MainConf &main_conf(ngx_http_request_t *r) {
    return *static_cast<MainConf *>(
        ngx_http_get_module_main_conf(r, ngx_http_limit_sliding_module));
}

inline LocConf &loc_conf(ngx_http_request_t *r) {
    return *static_cast<LocConf *>(ngx_http_get_module_loc_conf(r, ngx_http_limit_sliding_module));
}

/* Returns NGINX's configuration of the location that is being read or merged. */
inline ngx_http_core_loc_conf_t &core_loc_conf(ngx_conf_t *cf) {
    return *static_cast<ngx_http_core_loc_conf_t *>(
        ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module));
}

} // namespace limit_sliding
