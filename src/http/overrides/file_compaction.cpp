/* Copyright (C) the limit_sliding authors */

#include "http/overrides/file_compaction.hpp"

#include <unistd.h>

#include <algorithm>

#include "http/overrides/file_load.hpp"
#include "http/overrides/limits_file.hpp"
#include "http/overrides/line_reader.hpp"

namespace limit_sliding {
namespace {

/* The bytes of useless lines from which on a compaction is worth its work. */
constexpr uint64_t kUselessMin = 64 * 1024;
constexpr size_t kBufferBytes = LineReader::kBufferBytes;

/* Copies the useful lines of a file to its end, and from there to its beginning.  A line is useless
 * once its limit was replaced or removed, or has expired. */
class FileCopy {
public:
    /* `keeps_unknown`: a key without an entry in the table is copied, because the table had no room
     * for all keys.  Otherwise such a key has lost its limit. */
    FileCopy(ZoneConf &zone, bool keeps_unknown, char *buffers)
        : zone_(zone), keeps_unknown_(keeps_unknown),
          size_(zone.memory.aside.overrides->file.size.load(std::memory_order_relaxed)), at_(size_),
          in_(buffers), out_(buffers + kBufferBytes) {}

    bool run() {
        const auto fd = zone_.override_file.fd;
        if (copy_lines()) { return finish_copy(fd, begin_, end_); }

        const auto error = ngx_errno;
        /* If this fails as well, the copied bytes remain until API writes overwrite them. */
        [[maybe_unused]] const auto rc = ftruncate(fd, static_cast<off_t>(size_));
        ngx_set_errno(error);
        return false;
    }

private:
    bool copy_lines() {
        const auto fd = zone_.override_file.fd;
        char last = '\n';
        if (size_ != 0 && read_at(fd, &last, 1, size_ - 1) != 1) { return false; }

        if ((last != '\n' && !add("\n")) || !add(kCopyBegins)) { return false; }

        begin_ = at_ + used_;
        LineReader lines(fd, in_, 0, size_);
        while (lines.next()) {
            if (!copy(lines)) { return false; }
        }

        if (lines.error != 0) { return false; }

        end_ = at_ + used_;
        return flush() && fdatasync(fd) == 0 && add_end() && flush() && fdatasync(fd) == 0;
    }

    /* Copies the line if it is useful.  A line that exceeds the reader's buffer is useless. */
    bool copy(LineReader &lines) {
        if (lines.is_long) { return true; }

        if (used_ + lines.size + 1 > kBufferBytes && !flush()) { return false; }

        /* Parsing may change the line, so it is copied first. */
        char *end = std::copy(lines.line, lines.line + lines.size, out_ + used_);
        *end++ = '\n';
        if (is_of_use(lines)) { used_ = end - out_; }

        return true;
    }

    bool is_of_use(LineReader &lines) {
        OverrideLine line;
        if (read_line(zone_, lines.line, lines.size, &line) != OverrideLine::Kind::kOverride) {
            return true;
        }

        Overrides::Entry entry;
        const bool is_known = zone_.memory.aside.overrides->find(line.hash, &entry);
        return is_known ? entry.at == lines.at : keeps_unknown_;
    }

    bool add_end() {
        char text[kCopyEndsBytes + 1];
        ngx_snprintf(reinterpret_cast<u_char *>(text), sizeof(text), "%*s%020uL\n",
                     kCopyEnds.size(), kCopyEnds.data(), begin_);
        return add({text, kCopyEndsBytes});
    }

    bool add(std::string_view text) {
        if (used_ + text.size() > kBufferBytes && !flush()) { return false; }

        used_ = std::copy(text.begin(), text.end(), out_ + used_) - out_;
        return true;
    }

    bool flush() {
        if (!write_fully(zone_.override_file.fd, {out_, used_}, at_)) { return false; }

        at_ += used_;
        used_ = 0;
        return true;
    }

    ZoneConf &zone_;
    bool keeps_unknown_;
    uint64_t size_;      /* bytes of the file before the copy */
    uint64_t at_;        /* offset in the file of the first byte in out_ */
    uint64_t begin_ = 0; /* offsets in the file of the copied lines */
    uint64_t end_ = 0;
    char *in_;
    char *out_;       /* bytes to be written */
    size_t used_ = 0; /* number of bytes in out_ */
};

} // namespace

bool needs_compaction(const ZoneConf &zone) {
    const auto &file = zone.memory.aside.overrides->file;
    /* The numbers are estimates, because they are read one by one and without the lock.  `lines`
     * may be 0 even if `useless` is not. */
    const uint64_t lines = file.lines.load(std::memory_order_relaxed);
    const uint64_t useless = file.superseded.load(std::memory_order_relaxed);
    const uint64_t size = file.size.load(std::memory_order_relaxed);

    return size <= kOverrideFileMax && useless > lines / 2 && size * useless >= kUselessMin * lines;
}

bool compact_overrides(ngx_log_t *log, ZoneConf &zone) {
    OverridesLock lock(zone.override_file.fd);
    if (!lock.wait() || state_of_overrides(zone) == OverridesState::kReplaced) { return false; }

    /* This finds the overrides that have expired, and whether the table has room for all others. */
    uint64_t unplaced;
    if (!load_overrides(log, zone, OverridesRepair::kAll, &unplaced)) { return false; }

    auto *buffers = static_cast<char *>(ngx_alloc(2 * kBufferBytes, log));
    if (buffers == nullptr) { return false; }

    const bool done = FileCopy(zone, unplaced != 0, buffers).run();
    if (!done) {
        ngx_log_error(NGX_LOG_ERR, log, ngx_errno,
                      "the limits of zone \"%V\" in \"%V\" cannot be "
                      "compacted",
                      &zone.name, &zone.override_file.path);
    }

    ngx_free(buffers);
    if (!load_overrides(log, zone, OverridesRepair::kAll) || !done) { return false; }

    ngx_log_error(NGX_LOG_INFO, log, 0, "the limits of zone \"%V\" were compacted", &zone.name);
    return true;
}

} // namespace limit_sliding
