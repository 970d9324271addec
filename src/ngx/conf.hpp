/* Copyright (C) the limit_sliding authors */

/* Results and log messages of directive handlers. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

inline char *conf_failed() { return static_cast<char *>(NGX_CONF_ERROR); }

/* NGINX logs the reason in the form '"name" directive is duplicate'. */
inline char *conf_failed(const char *reason) { return const_cast<char *>(reason); }

inline char *conf_result(bool success) { return success ? NGX_CONF_OK : conf_failed(); }

/* Logs an error; NGINX adds the file and the line. */
template <class... Args>
char *conf_error(ngx_conf_t *cf, const char *format, Args... args) {
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, format, args...);
    return conf_failed();
}

/* Logs an error for functions that return true on success; returns false. */
template <class... Args>
bool conf_invalid(ngx_conf_t *cf, const char *format, Args... args) {
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, format, args...);
    return false;
}

/* A place in the configuration, for later error messages. */
struct FileLine {
    u_char *file; /* null-terminated */
    ngx_uint_t line;
};

/* Returns the place of the directive that is being read. */
inline FileLine file_line_of(ngx_conf_t *cf) {
    return {cf->conf_file->file.name.data, cf->conf_file->line};
}

/* Logs an error with the place, for which the format ends with "%s:%ui"; returns false. */
template <class... Args>
bool invalid_at(ngx_conf_t *cf, const FileLine &where, const char *format, Args... args) {
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0, format, args..., where.file, where.line);
    return false;
}

} // namespace limit_sliding
