/*
 * Copyright (C) the limit_sliding authors
 */

/* Lines about one Redis in the error log, at most one a second. */

#ifndef LIMIT_SLIDING_REDIS_ERROR_LOG_HPP
#define LIMIT_SLIDING_REDIS_ERROR_LOG_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

class ErrorLog {
public:
    void set_name(const ngx_str_t &name) { name_ = name; }

    /* Writes a line that names the Redis, and how many were left out since the
     * last one.  The format is that of ngx_log_error(). */
    void write(ngx_err_t err, const char *fmt, ...);

private:
    ngx_str_t name_;
    ngx_msec_t after_;
    ngx_uint_t omitted_;
};

} // namespace limit_sliding

#endif
