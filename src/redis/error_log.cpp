
/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/error_log.hpp"

namespace limit_sliding {

void ErrorLog::write(ngx_err_t err, const char *fmt, ...)
{
    if ((ngx_msec_int_t)(after_ - ngx_current_msec) > 0) {
        omitted_++;
        return;
    }

    after_ = ngx_current_msec + 1000;

    u_char text[NGX_MAX_ERROR_STR];
    va_list args;

    va_start(args, fmt);
    u_char *last = ngx_vslprintf(text, text + sizeof(text), fmt, args);
    va_end(args);

    if (omitted_) {
        last = ngx_slprintf(last, text + sizeof(text),
                            ", %ui such lines omitted", omitted_);
        omitted_ = 0;
    }

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, err,
                  "limit_sliding redis \"%V\": %*s", &name_, last - text, text);
}

} // namespace limit_sliding
