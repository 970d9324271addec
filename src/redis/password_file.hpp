/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_REDIS_PASSWORD_FILE_HPP
#define LIMIT_SLIDING_REDIS_PASSWORD_FILE_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Reads the first line of a file into memory of the configuration; a path
 * without a slash at its head begins in the folder of nginx.conf.  Returns
 * NGX_CONF_OK, or the error once it is logged. */
char *read_password_file(ngx_conf_t *cf, ngx_str_t path, ngx_str_t *password);

} // namespace limit_sliding

#endif
