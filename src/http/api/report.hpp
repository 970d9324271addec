/*
 * Copyright (C) the limit_sliding authors
 */

/* Figures of all zones. */

#ifndef LIMIT_SLIDING_HTTP_API_REPORT_HPP
#define LIMIT_SLIDING_HTTP_API_REPORT_HPP

#include "http/configuration.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* A zone's numbers at one moment. */

struct ZoneReport {
    ZoneConf *zone;
    Counters counters;
    uint64_t slots;
    uint64_t keys;
};

ZoneReport *report_zones(ngx_http_request_t *r, ngx_uint_t *n);

/* By Count. */
extern char *count_names[];

} // namespace limit_sliding

#endif
