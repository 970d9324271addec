/* Copyright (C) the limit_sliding authors */

/* All figures at once. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Handlers of requests for the figures of all zones and of each Redis. */
ngx_int_t send_report(ngx_http_request_t *r);  /* in JSON */
ngx_int_t send_metrics(ngx_http_request_t *r); /* for Prometheus */

} // namespace limit_sliding
