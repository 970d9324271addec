/* Copyright (C) the limit_sliding authors */

/* The reports of all zones and of each Redis. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Send the report. */
ngx_int_t send_report(ngx_http_request_t *r);  /* as JSON */
ngx_int_t send_metrics(ngx_http_request_t *r); /* for Prometheus */

} // namespace limit_sliding
