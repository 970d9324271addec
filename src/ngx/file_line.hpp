/*
 * Copyright (C) the limit_sliding authors
 */

/* Where something is written in the configuration, to blame it later. */

#ifndef LIMIT_SLIDING_NGX_FILE_LINE_HPP
#define LIMIT_SLIDING_NGX_FILE_LINE_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

struct FileLine {
    u_char *file; /* ends with a null byte */
    ngx_uint_t line;
};

/* Logs what is wrong, with the place for "%s:%ui" at its end; returns false. */
template <class... Args>
bool invalid_at(ngx_conf_t *cf, const FileLine &where, const char *format,
                Args... args)
{
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0, format, args..., where.file,
                  where.line);
    return false;
}

/* The directive that is being read. */
inline FileLine file_line_of(ngx_conf_t *cf)
{
    return {cf->conf_file->file.name.data, cf->conf_file->line};
}

} // namespace limit_sliding

#endif
