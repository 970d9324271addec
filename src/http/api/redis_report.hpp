/*
 * Copyright (C) the limit_sliding authors
 */

/* Figures of Redis. */

#ifndef LIMIT_SLIDING_HTTP_API_REDIS_REPORT_HPP
#define LIMIT_SLIDING_HTTP_API_REDIS_REPORT_HPP

#include "http/api/writer.hpp"
#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

void json_redises(ngx_http_request_t *r, Writer *text);
void json_leases(Writer *text, ZoneConf *zone);
void metrics_redises(ngx_http_request_t *r, Writer *text);

} // namespace limit_sliding

#endif
