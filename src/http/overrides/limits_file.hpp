/* Copyright (C) the limit_sliding authors */

/* The file of a zone's overrides.  The master opens the file, and workers inherit the descriptor,
 * so they need no permission for the path.  A zone without "limits=" has a file without a name,
 * which lives as long as the zone's memory.  Writers, and the reader at a reload, hold a lock of
 * the file, which the kernel releases if they die. */

#pragma once

#include <string_view>

#include "http/conf/zone_conf.hpp"
#include "ngx/conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Maximum size of a file in bytes: offsets of lines have 32 bits. */
constexpr uint64_t kOverrideFileMax = UINT32_MAX;

/* Opens or creates the zone's file; "nginx -t" creates none.  Returns false if that fails. */
bool open_overrides(ngx_conf_t *cf, const Zones &zones, ZoneConf &zone);

/* Closes the file, if it is open. */
void close_overrides(ZoneConf &zone);

/* Returns true if two descriptors have the same file. */
bool is_same_file(ngx_fd_t a, ngx_fd_t b);

/* A lock of a zone's file, which ends with the object.  A process has one lock of a file. */
class OverridesLock {
public:
    explicit OverridesLock(ngx_fd_t fd) : fd_(fd) {}
    ~OverridesLock();

    OverridesLock(const OverridesLock &) = delete;
    OverridesLock &operator=(const OverridesLock &) = delete;

    /* Waits for the lock.  Returns false and sets errno if that fails. */
    bool wait();

    /* Waits at most 10 seconds, so that a stopped worker does not hold up the process.  A lock for
     * writes is one for reads if the descriptor can only read. */
    bool wait_briefly(bool writes);

private:
    bool set(int command, short type);

    ngx_fd_t fd_;
    bool is_held_ = false;
};

/* The caller holds the lock, except for may_have_changed() and read_at(). */

enum class OverridesState {
    kCurrent, /* the memory is in step with the file */
    kChanged, /* another process has written to the file, or died while writing */
    kReplaced /* the path has another file now */
};

OverridesState state_of_overrides(const ZoneConf &zone);

/* Records that the memory has the file's state; false: the file does not have `size` bytes. */
bool mark_current(ZoneConf &zone, uint64_t size);

/* Returns true if the file may have changed, by a single fstat() without the lock. */
bool may_have_changed(const ZoneConf &zone);

/* Reads like pread(), and retries after a signal. */
ssize_t read_at(ngx_fd_t fd, char *buffer, size_t size, uint64_t at);

/* Writes all bytes at an offset.  Returns false and sets errno if that fails. */
bool write_fully(ngx_fd_t fd, std::string_view text, uint64_t at);

/* The lines before and behind a copy of the useful lines (see file_compaction.hpp). */
constexpr std::string_view kCopyBegins = "#!limit_sliding: what follows is a copy of the above\n";
constexpr std::string_view kCopyEnds = "#!limit_sliding: end of the copy that began at byte ";
constexpr size_t kCopyEndsBytes = kCopyEnds.size() + 20 + 1; /* with 20 digits and a newline */

/* Replaces all lines by the copy from .. to - 1.  Returns false and sets errno if that fails. */
bool finish_copy(ngx_fd_t fd, uint64_t from, uint64_t to);

} // namespace limit_sliding
