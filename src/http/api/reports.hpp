/* Copyright (C) the limit_sliding authors */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Send the report of all zones and of each Redis. */
ngx_int_t send_report(ngx_http_request_t *r);    /* as JSON */
ngx_int_t send_metrics(ngx_http_request_t *r);   /* for Prometheus */
ngx_int_t send_dashboard(ngx_http_request_t *r); /* as a page that shows its figures live */

} // namespace limit_sliding
