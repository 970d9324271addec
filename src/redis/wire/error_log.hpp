/* Copyright (C) the limit_sliding authors */

/* Lines about one Redis in the error log, at most one a second. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

struct ErrorLog {
    /* Writes a line with the name of the Redis and the number of omitted lines, or omits it
     * within a second of the last line.  The format is that of ngx_log_error(). */
    void write(ngx_err_t err, const char *fmt, ...) {
        if (ms_until(after) > 0) {
            omitted++;
            return;
        }

        u_char text[NGX_MAX_ERROR_STR];
        u_char *end = text + sizeof(text);
        va_list args;

        va_start(args, fmt);
        u_char *last = ngx_vslprintf(text, end, fmt, args);
        va_end(args);

        if (omitted != 0) { last = ngx_slprintf(last, end, ", %ui such lines omitted", omitted); }

        after = ngx_current_msec + 1000;
        omitted = 0;

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, err, "limit_sliding redis \"%V\": %*s", &name,
                      last - text, text);
    }

    ngx_str_t name;
    ngx_msec_t after;
    ngx_uint_t omitted;
};

} // namespace limit_sliding
