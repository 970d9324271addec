/* Copyright (C) the limit_sliding authors */

#include "redis/wire/password_file.hpp"

#include "ngx/conf.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

/* Takes the password from the file, and leaves no copy of it anywhere else.  Returns nullptr; else
 * a message with "%V" for the path, and the reason as errno. */
const char *PasswordFile::update(int mode) {
    ngx_fd_t fd = ngx_open_file(path_.data, mode, NGX_FILE_OPEN, 0);
    if (fd == NGX_INVALID_FILE) { return ngx_open_file_n " \"%V\" failed"; }

    u_char text[sizeof(password_)];
    const ssize_t n = ngx_read_fd(fd, text, sizeof(text));
    const ngx_err_t err = n == -1 ? ngx_errno : 0;
    (void)ngx_close_file(fd);
    ngx_set_errno(err);
    if (n == -1) { return ngx_read_fd_n " \"%V\" failed"; }

    auto line = view(text, n);
    line = first(line, line.find('\n'));
    (void)cut_suffix(&line, "\r");
    if (!line.empty()) {
        ngx_explicit_memzero(password_, len_);
        len_ = line.size();
        ngx_memcpy(password_, line.data(), len_);
    }

    ngx_explicit_memzero(text, sizeof(text));
    return line.empty() ? "no password in \"%V\"" : nullptr;
}

char *PasswordFile::set(ngx_conf_t *cf, ngx_str_t path) {
    path_ = path;
    if (ngx_conf_full_name(cf->cycle, &path_, 1) != NGX_OK) { return conf_failed(); }

    if (const char *wrong = update(NGX_FILE_RDONLY)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno, wrong, &path_);
        return conf_failed();
    }

    ngx_file_info_t info;
    if (ngx_file_info(path_.data, &info) == 0 && (info.st_mode & S_IROTH)) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "password file \"%V\" can be read by others",
                           &path_);
    }
    return NGX_CONF_OK;
}

/* Opens the file without waiting, because a FIFO may have no writer. */
std::string_view PasswordFile::current(const ErrorLog &log) {
    const char *wrong = update(NGX_FILE_RDONLY | NGX_FILE_NONBLOCK);
    const ngx_err_t err = wrong != nullptr ? ngx_errno : 0;
    if (is_failing_ != (wrong != nullptr)) {
        is_failing_ = wrong != nullptr;
        u_char text[NGX_MAX_ERROR_STR];
        u_char *end = ngx_snprintf(text, sizeof(text),
                                   is_failing_ ? wrong : "\"%V\" has a password again", &path_);
        const ngx_uint_t level = is_failing_ ? NGX_LOG_WARN : NGX_LOG_NOTICE;
        ngx_log_error(level, ngx_cycle->log, err, "limit_sliding redis \"%V\": %*s%s", &log.name,
                      end - text, text, is_failing_ ? ", the last password is used" : "");
    }
    return view(password_, len_);
}

} // namespace limit_sliding
