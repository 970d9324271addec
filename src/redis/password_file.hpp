/*
 * Copyright (C) the limit_sliding authors
 */

/* Passwords in files. */

#ifndef LIMIT_SLIDING_REDIS_PASSWORD_FILE_HPP
#define LIMIT_SLIDING_REDIS_PASSWORD_FILE_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

char *set_password_file(ngx_conf_t *cf, ngx_str_t *value, void *field);

} // namespace limit_sliding

#endif
