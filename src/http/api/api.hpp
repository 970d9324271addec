/*
 * Copyright (C) the limit_sliding authors
 */

/* Where the API is. */

#ifndef LIMIT_SLIDING_HTTP_API_API_HPP
#define LIMIT_SLIDING_HTTP_API_API_HPP

#include "http/configuration.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_uint_t merge_api(ngx_conf_t *cf, LocConf *prev, LocConf *conf);

} // namespace limit_sliding

#endif
