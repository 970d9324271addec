/* Copyright (C) the limit_sliding authors */

#pragma once

#include "http/conf/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Answers requests for one key of the zone: GET, PUT, DELETE and POST. */
ngx_int_t handle_key(ngx_http_request_t *r, ZoneConf &zone);

} // namespace limit_sliding
