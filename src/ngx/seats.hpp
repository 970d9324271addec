/* Copyright (C) the limit_sliding authors */

/* A seat is a number that one living process has.  The process holds a record lock on one byte of
 * a file without a name, so the kernel frees the seat as soon as the process ends.  A process id
 * could be reused.  The master opens the file, and workers of all cycles inherit the file. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Opens the file, unless this process has it.  Logs an error and returns false if it fails. */
bool open_seats(ngx_log_t *log);

/* Takes the lowest of n numbers that no living process has.  Returns NGX_ERROR if there is
 * none. */
ngx_int_t take_seat(ngx_int_t n);

/* enter_seat() takes a seat and returns true, unless a living process has the seat.  A process
 * must not enter its own seat again: leave_seat() would then leave both. */
bool enter_seat(ngx_int_t seat);
void leave_seat(ngx_int_t seat);

} // namespace limit_sliding
