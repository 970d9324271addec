/* Copyright (C) the limit_sliding authors */

/* limit_sliding_api: the handler of a location. */

#pragma once

#include "http/conf/configuration.hpp"

namespace limit_sliding {

/* Reads "limit_sliding_api [write=on|off]". */
char *api_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Merges the handler, and returns true if the API answers in the location. */
bool merge_api(ngx_conf_t *cf, const LocConf *prev, LocConf *conf);

} // namespace limit_sliding
