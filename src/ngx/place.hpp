/*
 * Copyright (C) the limit_sliding authors
 */

/* Where something is written in the configuration, to blame it later. */

#ifndef LIMIT_SLIDING_NGX_PLACE_HPP
#define LIMIT_SLIDING_NGX_PLACE_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

struct Place {
    u_char *file; /* ends with a null byte */
    ngx_uint_t line;
};

/* Logs what is wrong, with the place for "%s:%ui" at its end; returns false. */
template <class... Args>
bool invalid_at(ngx_conf_t *cf, const Place &place, const char *format,
                Args... args)
{
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0, format, args..., place.file,
                  place.line);
    return false;
}

/* The directive that is being read. */
inline Place place_of(ngx_conf_t *cf)
{
    return {cf->conf_file->file.name.data, cf->conf_file->line};
}

} // namespace limit_sliding

#endif
