/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/password_file.hpp"

#include "ngx/conf.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

/* The beginning of a file; it leaves no secret on the stack. */
struct Beginning {
    ~Beginning() { ngx_explicit_memzero(text, sizeof(text)); }

    u_char text[4096];
    size_t len = 0;
};

char *read_beginning(ngx_conf_t *cf, ngx_str_t *path, Beginning *beginning)
{
    ngx_fd_t fd = ngx_open_file(path->data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);
    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" failed", path);
        return conf_failed();
    }

    ssize_t n = ngx_read_fd(fd, beginning->text, sizeof(beginning->text));
    if (n == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_read_fd_n " \"%V\" failed", path);
    }

    ngx_file_info_t info;
    if (ngx_fd_info(fd, &info) == 0 && (info.st_mode & S_IROTH)) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "password file \"%V\" can be read by others", path);
    }

    (void)ngx_close_file(fd);
    if (n == -1) {
        return conf_failed();
    }

    beginning->len = n;
    return NGX_CONF_OK;
}

} // namespace

char *read_password_file(ngx_conf_t *cf, ngx_str_t path, ngx_str_t *password)
{
    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK) {
        return conf_failed();
    }

    Beginning beginning;
    if (char *error = read_beginning(cf, &path, &beginning)) {
        return error;
    }

    auto line = view(beginning.text, beginning.len);
    line = line.substr(0, line.find('\n'));
    if (!line.empty() && line.back() == '\r') {
        line.remove_suffix(1);
    }

    if (line.empty()) {
        return conf_error(cf, "no password in \"%V\"", &path);
    }

    ngx_str_t text = to_str(line);
    password->data = ngx_pstrdup(cf->pool, &text);
    password->len = text.len;
    return password->data ? NGX_CONF_OK : conf_failed();
}

} // namespace limit_sliding
