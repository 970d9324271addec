/* Copyright (C) the limit_sliding authors */

/* limit_sliding_api: the handler of a location, and its reports. */

#pragma once

#include "http/conf/configuration.hpp"

namespace limit_sliding {

/* Send the report of all zones and of each Redis. */
ngx_int_t send_report(ngx_http_request_t *r);    /* as JSON */
ngx_int_t send_metrics(ngx_http_request_t *r);   /* for Prometheus */
ngx_int_t send_dashboard(ngx_http_request_t *r); /* as a page that shows its figures live */

/* Merges the handler, and returns true if the API answers in the location. */
bool merge_api(ngx_conf_t *cf, const LocConf *prev, LocConf *conf);

} // namespace limit_sliding
