/*
 * Copyright (C) the limit_sliding authors
 */

/* The Redis blocks of a configuration. */

#ifndef LIMIT_SLIDING_HTTP_REDIS_DIRECTIVE_HPP
#define LIMIT_SLIDING_HTTP_REDIS_DIRECTIVE_HPP

#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

char *zone_redis(ngx_conf_t *cf, ZoneConf *zone, Param *param);
char *zone_lease(ngx_conf_t *cf, ZoneConf *zone, Param *param);
ngx_int_t init_redises(ngx_conf_t *cf, MainConf *lsmcf);
void enter_redises(MainConf *lsmcf);

} // namespace limit_sliding

#endif
