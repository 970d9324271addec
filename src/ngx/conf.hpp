/* Copyright (C) the limit_sliding authors */

/* Results and log messages of directive handlers. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

inline char *conf_failed() { return static_cast<char *>(NGX_CONF_ERROR); }

/* Fails with a reason that NGINX logs behind the directive's name, such as "is duplicate". */
inline char *conf_failed(const char *reason) { return const_cast<char *>(reason); }

inline char *conf_result(bool success) { return success ? NGX_CONF_OK : conf_failed(); }

/* Logs an error, to which NGINX adds the file and the line. */
template <class... Args>
char *conf_error(ngx_conf_t *cf, const char *format, Args... args) {
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, format, args...);
    return conf_failed();
}

/* Logs an error and returns false, for functions that return true on success. */
template <class... Args>
bool conf_invalid(ngx_conf_t *cf, const char *format, Args... args) {
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, format, args...);
    return false;
}

/* A position in the configuration, for later error messages. */
struct FileLine {
    u_char *file; /* null-terminated path */
    ngx_uint_t line;
};

/* Returns the position of the directive that is being read. */
inline FileLine file_line_of(ngx_conf_t *cf) {
    return {cf->conf_file->file.name.data, cf->conf_file->line};
}

/* Logs an error and returns false.  The format ends with "%s:%ui" for the position. */
template <class... Args>
bool invalid_at(ngx_conf_t *cf, const FileLine &where, const char *format, Args... args) {
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0, format, args..., where.file, where.line);
    return false;
}

} // namespace limit_sliding
