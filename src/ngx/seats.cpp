/* Copyright (C) the limit_sliding authors */

#include "ngx/seats.hpp"

#include <fcntl.h>

#include "ngx/unnamed_file.hpp"

namespace limit_sliding {
namespace {

ngx_fd_t seats_fd = NGX_INVALID_FILE;

bool lock(ngx_int_t seat, short type) {
    struct flock byte = {};
    byte.l_type = type;
    byte.l_whence = SEEK_SET;
    byte.l_start = seat;
    byte.l_len = 1;
    return fcntl(seats_fd, F_SETLK, &byte) == 0;
}

} // namespace

bool open_seats(ngx_log_t *log) {
    if (seats_fd == NGX_INVALID_FILE) { seats_fd = create_unnamed_file(); }

    if (seats_fd != NGX_INVALID_FILE) { return true; }

    ngx_log_error(NGX_LOG_EMERG, log, ngx_errno, "limit_sliding cannot open a file for locks");
    return false;
}

bool enter_seat(ngx_int_t seat) { return lock(seat, F_WRLCK); }

void leave_seat(ngx_int_t seat) { (void)lock(seat, F_UNLCK); }

ngx_int_t take_seat(ngx_int_t n) {
    for (ngx_int_t seat = 0; seat < n; seat++) {
        if (enter_seat(seat)) { return seat; }
    }

    return NGX_ERROR;
}

} // namespace limit_sliding
