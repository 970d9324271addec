/* Copyright (C) the limit_sliding authors */

/* limit_sliding_api: the handler of a location. */

#pragma once

#include "http/conf/configuration.hpp"

namespace limit_sliding {

/* Merges the handler, and returns true if the API answers in the location. */
bool merge_api(ngx_conf_t *cf, const LocConf *prev, LocConf *conf);

} // namespace limit_sliding
