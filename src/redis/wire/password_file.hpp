/* Copyright (C) the limit_sliding authors */

/* A password in a file.  Each connection reads it again, so that it may change without a reload. */

#pragma once

#include <string_view>

#include "redis/wire/error_log.hpp"

namespace limit_sliding {

class PasswordFile {
public:
    /* Reads the first line of the file, for a directive.  A path without a leading slash begins in
     * the folder of nginx.conf.  Returns NGX_CONF_OK; else logs the error. */
    char *set(ngx_conf_t *cf, ngx_str_t path);

    /* Reads the file again, and returns the password.  While that fails, the last password stays.
     * Writes a line to the error log when it begins to fail, and when it succeeds again. */
    std::string_view current(const ErrorLog &log);

private:
    const char *update(int mode);

    ngx_str_t path_;
    bool is_failing_;
    size_t len_;
    u_char password_[4096];
};

} // namespace limit_sliding
