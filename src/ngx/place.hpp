/*
 * Copyright (C) the limit_sliding authors
 */

/* Where something is written in the configuration. */

#ifndef LIMIT_SLIDING_NGX_PLACE_HPP
#define LIMIT_SLIDING_NGX_PLACE_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

struct Place {
    u_char *file; /* ends with a null byte */
    ngx_uint_t line;
};

/* The directive that is being read. */
inline Place place_of(ngx_conf_t *cf)
{
    return {cf->conf_file->file.name.data, cf->conf_file->line};
}

} // namespace limit_sliding

#endif
