/* Copyright (C) the limit_sliding authors */

/*
 * The file of the overrides of a zone's keys.
 *
 * The master opens it, and workers inherit the descriptor: they need no right to
 * open the path.  A zone without "limits=" has a file without a name, which lives as
 * long as its memory.  Writers, the reader at a reload among them, hold a lock of
 * the file, which the kernel takes from them when they die.
 */

#pragma once

#include <string_view>

#include "http/conf/zone.hpp"
#include "ngx/conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Lines have their place in 32 bits. */
constexpr uint64_t kLimitsFileMax = UINT32_MAX;

/* Opens the zone's file, or makes one; a test of a configuration makes none.  Logs
 * what is wrong, and returns false. */
bool open_limits(ngx_conf_t *cf, const Zones &zones, ZoneConf &zone);

/* Closes the file, if it is open. */
void close_limits(ZoneConf &zone);

/* True if two descriptors are of one file. */
bool is_same_file(ngx_fd_t a, ngx_fd_t b);

/* Holds the lock of a zone's file, if any; one at a time in a process. */
class LimitsLock {
public:
    explicit LimitsLock(ngx_fd_t fd) : fd_(fd) {}
    ~LimitsLock();

    LimitsLock(const LimitsLock &) = delete;
    LimitsLock &operator=(const LimitsLock &) = delete;

    /* Waits for it; sets errno and returns false if there is none to be had. */
    bool wait();

    /* Waits for 10 seconds at most, in a process that must not be held up by a
     * worker that is stopped.  A file that cannot be written is locked for reading. */
    bool wait_briefly(bool writes);

private:
    bool set(int command, short type);

    ngx_fd_t fd_;
    bool is_held_ = false;
};

/* The functions below are for whoever holds the lock. */

enum class LimitsState {
    kCurrent, /* the memory is what the file says */
    kChanged, /* somebody else has written, or died while writing */
    kReplaced /* the path is another file's by now */
};

LimitsState state_of_limits(const ZoneConf &zone);

/* Remembers that the memory is what the file says, of so many bytes. */
bool mark_current(ZoneConf &zone, uint64_t size);

/* Tells by one look at the file, without the lock, whether it may have changed. */
bool may_have_changed(const ZoneConf &zone);

/* Reads as pread() does, and again if a signal comes. */
ssize_t read_at(ngx_fd_t fd, char *buffer, size_t size, uint64_t at);

/* Writes all bytes at a place; false: errno tells why not. */
bool write_fully(ngx_fd_t fd, std::string_view text, uint64_t at);

/* Makes a copy of the file's lines that are of use in their place: see
 * limits_compaction.hpp.  A copy lies behind the lines, between these. */
constexpr std::string_view kCopyBegins = "#!limit_sliding: what follows is a copy of the above\n";
constexpr std::string_view kCopyEnds = "#!limit_sliding: end of the copy that began at byte ";
constexpr size_t kCopyEndsBytes = kCopyEnds.size() + 20 + 1; /* with a number */

/* Moves a complete copy in the place of the lines. */
bool finish_copy(ngx_fd_t fd, uint64_t from, uint64_t to);

} // namespace limit_sliding
