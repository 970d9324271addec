/* Copyright (C) the limit_sliding authors */

/* limit_sliding_api: the handler of a location. */

#pragma once

#include "http/conf/configuration.hpp"

namespace limit_sliding {

/* Returns whether the API answers in the location that is being merged. */
bool merge_api(ngx_conf_t *cf, const LocConf *prev, LocConf *conf);

} // namespace limit_sliding
