/* Copyright (C) the limit_sliding authors */

/* Readers of directives. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

char *zone_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *limit_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *status_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *log_level_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *headers_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

} // namespace limit_sliding
