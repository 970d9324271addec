/*
 * Copyright (C) the limit_sliding authors
 */

/* The algorithm of a zone and its parameters. */

#ifndef LIMIT_SLIDING_HTTP_ALGORITHM_PARAM_HPP
#define LIMIT_SLIDING_HTTP_ALGORITHM_PARAM_HPP

#include "http/parameter.hpp"
#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* As the configuration names it. */
const ngx_str_t *algorithm_name(Algorithm algorithm);

/* Setters for limit_sliding_zone; they are called in this order. */
bool set_algorithm(ngx_conf_t *cf, const Param &param, ZoneConf &zone);
bool set_precision(ngx_conf_t *cf, const Param &param, ZoneConf &zone);
bool set_burst(ngx_conf_t *cf, const Param &param, ZoneConf &zone);

} // namespace limit_sliding

#endif
