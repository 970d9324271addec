/* Copyright (C) the limit_sliding authors */

#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Returns a new file without a name, which programs that the process starts do not get.
 * NGX_INVALID_FILE: ngx_errno tells why. */
inline ngx_fd_t create_unnamed_file() {
#ifdef MFD_CLOEXEC
    return memfd_create("limit_sliding", MFD_CLOEXEC);
#else
    char path[] = "/tmp/limit_sliding.XXXXXX";
    const ngx_fd_t fd = mkstemp(path);
    if (fd == NGX_INVALID_FILE) { return fd; }

    (void)unlink(path);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
#endif
}

} // namespace limit_sliding
