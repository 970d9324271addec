
/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/password_file.hpp"
#include "ngx/ngx.hpp"
#include "redis/block_fields.hpp"

namespace limit_sliding {

static ngx_int_t read_password(ngx_conf_t *cf, ngx_str_t *path, u_char *buf,
                               size_t *len);

/* The first line of the file. */

char *set_password_file(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_str_t *password = field;

    u_char buf[4096], *p;
    size_t len;
    ngx_str_t path;

    if (password->data) {
        return duplicate(cf, value);
    }

    path = value[1];
    len = sizeof(buf);

    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK
        || read_password(cf, &path, buf, &len) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    p = ngx_strlchr(buf, buf + len, '\n');

    if (p) {
        len = p - buf;
    }

    if (len > 0 && buf[len - 1] == '\r') {
        len--;
    }

    if (len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "no password in \"%V\"",
                           &path);
        return NGX_CONF_ERROR;
    }

    password->data = ngx_pnalloc(cf->pool, len);
    if (password->data == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memcpy(password->data, buf, len);
    password->len = len;

    ngx_explicit_memzero(buf, sizeof(buf));

    return NGX_CONF_OK;
}

static ngx_int_t read_password(ngx_conf_t *cf, ngx_str_t *path, u_char *buf,
                               size_t *len)
{
    ssize_t n;
    ngx_fd_t fd;
    ngx_file_info_t fi;

    fd = ngx_open_file(path->data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" failed", path);
        return NGX_ERROR;
    }

    n = ngx_read_fd(fd, buf, *len);

    if (n == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_read_fd_n " \"%V\" failed", path);
    }

    if (ngx_fd_info(fd, &fi) == 0 && (fi.st_mode & S_IROTH)) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "password file \"%V\" can be read by others", path);
    }

    (void)ngx_close_file(fd);

    if (n == -1) {
        return NGX_ERROR;
    }

    *len = n;

    return NGX_OK;
}

} // namespace limit_sliding
