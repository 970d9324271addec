/*
 * Copyright (C) the limit_sliding authors
 */

/* What a reload keeps of a zone. */

#ifndef LIMIT_SLIDING_HTTP_ZONE_REUSE_HPP
#define LIMIT_SLIDING_HTTP_ZONE_REUSE_HPP

#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t reuse_zone(ngx_conf_t *cf, ZoneConf *zone);

extern ngx_uint_t zone_tags[2];

} // namespace limit_sliding

#endif
