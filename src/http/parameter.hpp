/*
 * Copyright (C) the limit_sliding authors
 */

/* Parameters of a directive. */

#ifndef LIMIT_SLIDING_HTTP_PARAMETER_HPP
#define LIMIT_SLIDING_HTTP_PARAMETER_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

/*
 * A parameter of a directive: `name` is "zone=", `word` "zone=one:1m"; of one
 * without a value both are "dry_run".
 */

struct Param {
    ngx_str_t name;
    ngx_str_t word;
    ngx_str_t value;
};

char *parse_params(ngx_conf_t *cf, ngx_uint_t i, Param *params);

} // namespace limit_sliding

#endif
