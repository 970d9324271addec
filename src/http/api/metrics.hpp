/*
 * Copyright (C) the limit_sliding authors
 */

/* Metrics for Prometheus. */

#ifndef LIMIT_SLIDING_HTTP_API_METRICS_HPP
#define LIMIT_SLIDING_HTTP_API_METRICS_HPP

#include "http/api/writer.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t api_metrics(ngx_http_request_t *r);
void metrics_head(Writer *text, char *name, char *type, char *help);

} // namespace limit_sliding

#endif
