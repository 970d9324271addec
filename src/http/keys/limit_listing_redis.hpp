/* Copyright (C) the limit_sliding authors */

#pragma once

#include "http/conf/zone.hpp"

namespace limit_sliding {

/* Answers GET with a page of the overrides of a zone in Redis. */
ngx_int_t send_limits_of_redis(ngx_http_request_t *r, ZoneConf &zone);

} // namespace limit_sliding
