/* Copyright (C) the limit_sliding authors */

/* The requests of the API for one key, and for all limits of single keys. */

#pragma once

#include "http/conf/zone_conf.hpp"

namespace limit_sliding {

/* Answers requests for one key of the zone: GET, PUT, DELETE and POST. */
ngx_int_t handle_key(ngx_http_request_t *r, ZoneConf &zone);

/* Answer GET with a page of the overrides of a zone in this node's memory, or in Redis. */
ngx_int_t send_overrides(ngx_http_request_t *r, ZoneConf &zone);
ngx_int_t send_overrides_of_redis(ngx_http_request_t *r, ZoneConf &zone);

/* Returns the name of the limit in these pages. */
inline const char *limit_field(const ZoneConf &zone) {
    return zone.policy.is_in_flight() ? "inflight" : "rate";
}

} // namespace limit_sliding
