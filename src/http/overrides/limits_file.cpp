/* Copyright (C) the limit_sliding authors */

#include "http/overrides/limits_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/base/hashes.hpp"
#include "http/conf/configuration.hpp"
#include "ngx/strings.hpp"
#include "ngx/unnamed_file.hpp"

namespace limit_sliding {
namespace {

uint64_t identity_of(const struct stat &info) {
    return mixed(static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino));
}

uint64_t changed_ns_of(const struct stat &info) {
    return static_cast<uint64_t>(info.st_mtim.tv_sec) * 1000000000
           + static_cast<uint64_t>(info.st_mtim.tv_nsec);
}

bool cannot_open(ngx_conf_t *cf, const ZoneConf &zone) {
    ngx_log_error(NGX_LOG_EMERG, cf->log, ngx_errno,
                  "open() \"%V\" failed, the \"limits=\" of zone \"%V\" in %s:%ui",
                  &zone.override_file.path, &zone.name, zone.where.file, zone.where.line);
    return false;
}

/* Returns true if this process may create a file in the folder of the path. */
bool can_create(ngx_pool_t *pool, const ngx_str_t &path) {
    ngx_str_t folder = path;
    while (folder.len > 1 && folder.data[folder.len - 1] != '/') {
        folder.len--;
    }

    const ngx_str_t text = join(pool, view(folder), std::string_view("\0", 1));
    return text.data != nullptr
           && faccessat(AT_FDCWD, reinterpret_cast<char *>(text.data), W_OK | X_OK, AT_EACCESS)
                  == 0;
}

/* Opens a file without a name, or keeps that of the last cycle with the zone's memory.  Only the
 * API writes such a file: without "write=on", one is needed only if the memory has overrides.  If
 * they come from a file with a name, they end with it: an empty file is loaded in its place. */
bool open_unnamed(ngx_conf_t *cf, ZoneConf &zone) {
    if (ngx_test_config) { return true; }

    const auto *former = zone.restarted.len == 0 ? zone.former : nullptr;
    const bool has_overrides = former != nullptr && former->memory.aside.overrides->count() != 0;
    if (!main_conf(cf).charges && !has_overrides) { return true; }

    const bool goes_on = former != nullptr && former->override_file.fd != NGX_INVALID_FILE
                         && former->override_file.path.len == 0;
    zone.override_file.fd
        = goes_on ? fcntl(former->override_file.fd, F_DUPFD_CLOEXEC, 0) : create_unnamed_file();
    if (zone.override_file.fd != NGX_INVALID_FILE) { return true; }

    ngx_log_error(NGX_LOG_EMERG, cf->log, ngx_errno,
                  "no file could be made for the own limits of zone \"%V\"", &zone.name);
    return false;
}

/* Opens the file, and creates a missing one.  A test of the configuration only finds out whether
 * that would succeed. */
bool open_named(ngx_conf_t *cf, ZoneConf &zone) {
    auto &fd = zone.override_file.fd;
    const auto *path = reinterpret_cast<char *>(zone.override_file.path.data);
    constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;

    /* Keys may be secrets, so only the owner may read the file. */
    fd = open(path, O_RDWR | kFlags | (ngx_test_config ? 0 : O_CREAT), 0600);

    /* Only the API writes, so without "write=on", the file may be on a read-only file system.  A
     * folder is opened to be refused as no file. */
    const bool is_read_only = ngx_errno == EROFS || ngx_errno == NGX_EACCES;
    if (fd == NGX_INVALID_FILE
        && (ngx_errno == NGX_EISDIR || (is_read_only && !main_conf(cf).charges))) {
        fd = open(path, O_RDONLY | kFlags);
    }

    if (fd != NGX_INVALID_FILE) { return true; }

    return (ngx_test_config && ngx_errno == NGX_ENOENT
            && can_create(cf->pool, zone.override_file.path))
           || cannot_open(cf, zone);
}

/* Returns true if two files are the same.  "nginx -t" knows a missing file by its path only. */
bool are_same(const OverrideFile &a, const OverrideFile &b) {
    return (a.path.len != 0 && view(a.path) == view(b.path)) || is_same_file(a.fd, b.fd);
}

/* Checks that the file is a regular file, and that no other zone has it. */
bool check_file(ngx_conf_t *cf, const Zones &zones, const ZoneConf &zone) {
    struct stat info;
    const auto &file = zone.override_file;
    if (file.fd != NGX_INVALID_FILE) {
        if (fstat(file.fd, &info) != 0) { return cannot_open(cf, zone); }

        if (!S_ISREG(info.st_mode)) {
            return invalid_at(cf, zone.where, "\"limits=%V\" is not a regular file in %s:%ui",
                              &file.path);
        }
    }

    /* The files of later zones are opened and checked later. */
    for (auto *other : zones) {
        if (other == &zone) { break; }

        if (are_same(other->override_file, file)) {
            return invalid_at(cf, zone.where,
                              "\"limits=%V\" is the file of zone \"%V\", too, in %s:%ui",
                              &file.path, &other->name);
        }
    }

    return true;
}

} // namespace

bool open_overrides(ngx_conf_t *cf, const Zones &zones, ZoneConf &zone) {
    /* A process that only signals the master needs no file, and creates none. */
    if (zone.is_remote() || ngx_process == NGX_PROCESS_SIGNALLER) { return true; }

    auto *cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == nullptr) { return false; }

    if (zone.override_file.path.len != 0 ? !open_named(cf, zone) : !open_unnamed(cf, zone)) {
        return false;
    }

    cln->handler = [](void *data) { close_overrides(*static_cast<ZoneConf *>(data)); };
    cln->data = &zone;

    return check_file(cf, zones, zone);
}

void close_overrides(ZoneConf &zone) {
    auto &fd = zone.override_file.fd;
    if (fd != NGX_INVALID_FILE) { (void)close(fd); }

    fd = NGX_INVALID_FILE;
}

bool is_same_file(ngx_fd_t a, ngx_fd_t b) {
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && identity_of(one) == identity_of(other);
}

OverridesLock::~OverridesLock() {
    if (is_held_) { (void)set(F_SETLK, F_UNLCK); }
}

bool OverridesLock::set(int command, short type) {
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;

    int rc;
    do {
        rc = fcntl(fd_, command, &lock);
    } while (rc != 0 && ngx_errno == NGX_EINTR);

    is_held_ = rc == 0 && type != F_UNLCK;
    return rc == 0;
}

bool OverridesLock::wait() {
    /* The kernel sees locks by process, so it reports a deadlock if workers wait for the files of
     * two zones.  There is none: no thread of a worker holds more than one lock. */
    while (!set(F_SETLKW, F_WRLCK)) {
        if (ngx_errno != EDEADLK) { return false; }

        ngx_msleep(1);
    }

    return true;
}

bool OverridesLock::wait_briefly(bool writes) {
    const bool is_writable = (fcntl(fd_, F_GETFL) & O_ACCMODE) == O_RDWR;
    for (ngx_uint_t ms = 0; ms < 10000; ms += 10) {
        if (set(F_SETLK, writes && is_writable ? F_WRLCK : F_RDLCK)) { return true; }

        if (ngx_errno != NGX_EAGAIN && ngx_errno != NGX_EACCES) { return false; }

        ngx_msleep(10);
    }

    return false;
}

OverridesState state_of_overrides(const ZoneConf &zone) {
    const auto &path = zone.override_file.path;
    const auto &file = zone.memory.aside.overrides->file;
    struct stat info, at_path;
    if (fstat(zone.override_file.fd, &info) != 0) { return OverridesState::kChanged; }

    if (path.len != 0) {
        if (info.st_nlink == 0) { return OverridesState::kReplaced; }

        /* A worker may lack the permission to see the path, and then relies on its descriptor. */
        const bool is_there = stat(reinterpret_cast<char *>(path.data), &at_path) == 0;
        if (is_there ? identity_of(at_path) != identity_of(info) : ngx_errno == NGX_ENOENT) {
            return OverridesState::kReplaced;
        }
    }

    /* A reload has loaded another file.  The identity is 0 if the master could read no file. */
    const auto identity = file.identity.load(std::memory_order_relaxed);
    if (identity != 0 && identity != identity_of(info)) { return OverridesState::kReplaced; }

    return file.is_current(static_cast<uint64_t>(info.st_size), changed_ns_of(info))
               ? OverridesState::kCurrent
               : OverridesState::kChanged;
}

bool mark_current(ZoneConf &zone, uint64_t size) {
    auto &file = zone.memory.aside.overrides->file;
    struct stat info;
    if (fstat(zone.override_file.fd, &info) != 0 || static_cast<uint64_t>(info.st_size) != size) {
        return false;
    }

    file.end_change(size, identity_of(info), changed_ns_of(info));
    return true;
}

bool may_have_changed(const ZoneConf &zone) {
    struct stat info;
    return fstat(zone.override_file.fd, &info) == 0
           && !zone.memory.aside.overrides->file.is_current(static_cast<uint64_t>(info.st_size),
                                                            changed_ns_of(info));
}

ssize_t read_at(ngx_fd_t fd, char *buffer, size_t size, uint64_t at) {
    ssize_t n;
    do {
        n = pread(fd, buffer, size, static_cast<off_t>(at));
    } while (n < 0 && ngx_errno == NGX_EINTR);

    return n;
}

bool write_fully(ngx_fd_t fd, std::string_view text, uint64_t at) {
    while (!text.empty()) {
        const ssize_t n = pwrite(fd, text.data(), text.size(), static_cast<off_t>(at));
        if (n < 0 && ngx_errno == NGX_EINTR) { continue; }

        if (n <= 0) {
            ngx_set_errno(n == 0 ? NGX_ENOSPC : ngx_errno);
            return false;
        }

        text.remove_prefix(static_cast<size_t>(n));
        at += static_cast<size_t>(n);
    }

    return true;
}

bool finish_copy(ngx_fd_t fd, uint64_t from, uint64_t to) {
    char buffer[16 * 1024];

    for (uint64_t at = from; at < to;) {
        const size_t wanted = std::min<uint64_t>(sizeof(buffer), to - at);
        const ssize_t n = read_at(fd, buffer, wanted, at);
        if (n <= 0 || !write_fully(fd, {buffer, static_cast<size_t>(n)}, at - from)) {
            return false;
        }

        at += static_cast<uint64_t>(n);
    }

    return fdatasync(fd) == 0 && ftruncate(fd, static_cast<off_t>(to - from)) == 0
           && fdatasync(fd) == 0;
}

} // namespace limit_sliding
