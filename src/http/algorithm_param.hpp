/*
 * Copyright (C) the limit_sliding authors
 */

/* The algorithm of a zone and its parameters. */

#ifndef LIMIT_SLIDING_HTTP_ALGORITHM_PARAM_HPP
#define LIMIT_SLIDING_HTTP_ALGORITHM_PARAM_HPP

#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

char *set_algorithm(ngx_conf_t *cf, ZoneConf *zone, Param *param,
                    Param *precision, Param *burst);
ngx_str_t *algorithm_name(Algorithm algorithm);

} // namespace limit_sliding

#endif
