/* Copyright (C) the limit_sliding authors */

#include "http/overrides/file_load.hpp"

#include <sys/stat.h>

#include <cstdlib>

#include "core/table/zone.hpp"
#include "http/conf/written_key.hpp"
#include "http/overrides/limits_file.hpp"
#include "http/overrides/line_reader.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Maximum number of wrong lines that are logged one by one. */
constexpr uint64_t kWrongShown = 20;

class Load {
public:
    Load(ngx_log_t *log, ZoneConf &zone, OverridesRepair repair)
        : log_(log), zone_(zone), overrides_(*zone.memory.aside.overrides), repair_(repair) {}

    bool run() {
        struct stat info;
        const auto fd = zone_.override_file.fd;
        if (fstat(fd, &info) != 0) { return failed("fstat()"); }

        overrides_.file.begin_change();
        end_ = static_cast<uint64_t>(info.st_size);
        if (!find_copy()) { return false; }

        /* ngx_calloc() would touch all of the memory. */
        const size_t size = LineReader::kBufferBytes + OverridesLoad::scratch_bytes(overrides_);
        void *memory = calloc(1, size);
        if (memory == nullptr) {
            ngx_log_error(NGX_LOG_EMERG, log_, ngx_errno, "calloc(%uz) failed", size);
            return false;
        }

        buffer_ = static_cast<char *>(memory);
        const bool done = read(OverridesLoad(overrides_, buffer_ + LineReader::kBufferBytes));
        free(memory);
        return done && (is_test() || cut());
    }

    uint64_t unplaced() const { return unplaced_; }

private:
    bool is_test() const { return repair_ == OverridesRepair::kNothing; }

    /* Finds the valid lines.  Moves a complete copy to the beginning, unless this is a test. */
    bool find_copy() {
        char text[kCopyEndsBytes];
        const auto fd = zone_.override_file.fd;
        if (end_ < sizeof(text)) { return true; }

        /* The lines before a copy may be overwritten in part. */
        const ssize_t n = read_at(fd, text, sizeof(text), end_ - sizeof(text));
        if (n < 0) { return failed("pread()"); }

        if (n != ssize_t(sizeof(text)) || !starts_with({text, sizeof(text)}, kCopyEnds)) {
            return true;
        }

        const auto from = ngx_atoof(bytes({text + kCopyEnds.size(), 20}), 20);
        if (from == NGX_ERROR || static_cast<uint64_t>(from) > end_ - sizeof(text)) { return true; }

        begin_ = static_cast<uint64_t>(from);
        end_ -= sizeof(text);
        if (is_test()) { return true; }

        if (!finish_copy(fd, begin_, end_)) { return failed("moving the copy in"); }

        end_ -= begin_;
        begin_ = 0;
        return true;
    }

    /* Calls visit(line, lines) for each override.  `shows`: wrong lines are logged. */
    template <class Visit>
    bool each_line(bool shows, const Visit &visit) {
        LineReader lines(zone_.override_file.fd, buffer_, begin_, end_);

        while (lines.next() && lines.at <= kOverrideFileMax) {
            if (is_end(lines)) { break; }

            OverrideLine line;
            auto kind = OverrideLine::Kind::kWrong;
            line.error = "the line is too long";
            if (!lines.is_long) { kind = read_line(zone_, lines.line, lines.size, &line); }

            if (kind == OverrideLine::Kind::kOverride) {
                visit(line, lines);
            } else if (kind == OverrideLine::Kind::kWrong && shows) {
                log_wrong(line.error, lines.number);
            }
        }

        return lines.error == 0 || (ngx_set_errno(lines.error), failed("pread()"));
    }

    /* Returns true for the unfinished text of a process that died: a line of an API write, which
     * begins with a blank, or a copy. */
    bool is_end(const LineReader &lines) {
        const std::string_view text(lines.line, lines.size);
        const bool is_torn = !lines.is_complete && lines.size != 0 && text.front() == ' ';
        if (!is_torn && (lines.is_long || text != first(kCopyBegins, kCopyBegins.size() - 1))) {
            return false;
        }

        if (is_torn && repair_ == OverridesRepair::kCopies) { return true; }

        end_ = lines.at;
        is_cut_ = true;
        return true;
    }

    bool read(OverridesLoad load) {
        /* A new table has no readers yet, so it needs no marks.  An unfinished load leaves keys
         * with outdated offsets, but no identity. */
        if (overrides_.file.identity.load(std::memory_order_relaxed) != 0
            || overrides_.count() != 0) {
            if (!each_line(false, [&](const OverrideLine &line, const LineReader &lines) {
                    load.mark(line.hash, lines.at - begin_);
                })) {
                return false;
            }

            load.remove_unmarked();
        }

        const auto now_s = static_cast<uint64_t>(ngx_time());
        if (!each_line(true, [&](const OverrideLine &line, const LineReader &lines) {
                read_++;
                if (!load.set(line.hash, {line.own, line.until_s, lines.at - begin_}, now_s)) {
                    unplaced_ += 1;
                    if (unplaced_ == 1) { first_unplaced_ = lines.number; }
                }
            })) {
            return false;
        }

        load.end();
        log_summary();
        return true;
    }

    void log_wrong(const char *error, uint64_t number) {
        wrong_++;
        if (wrong_ > kWrongShown) { return; }

        ngx_log_error(NGX_LOG_ERR, log_, 0, "limit_sliding zone \"%V\": %s, ignored in %V:%uL",
                      &zone_.name, error, &zone_.override_file.path, number);
    }

    void log_summary() const {
        const auto &path = zone_.override_file.path;
        if (wrong_ > kWrongShown) {
            ngx_log_error(NGX_LOG_ERR, log_, 0,
                          "limit_sliding zone \"%V\": %uL lines were ignored in %V, of which the "
                          "first %uL were logged",
                          &zone_.name, wrong_, &path, kWrongShown);
        }

        if (unplaced_ != 0) {
            ngx_log_error(NGX_LOG_ERR, log_, 0,
                          "limit_sliding zone \"%V\": limits_max=%uz is too small, %uL more lines "
                          "were ignored, the first one in %V:%uL",
                          &zone_.name, zone_.override_file.max, unplaced_, &path, first_unplaced_);
        }
    }

    /* Removes unfinished text, and records the state of the file. */
    bool cut() {
        if (is_cut_) {
            if (ftruncate(zone_.override_file.fd, static_cast<off_t>(end_)) != 0) {
                return failed("ftruncate()");
            }

            ngx_log_error(NGX_LOG_NOTICE, log_, 0,
                          "limit_sliding zone \"%V\": removed an unfinished line or copy from the "
                          "end of %V",
                          &zone_.name, &zone_.override_file.path);
        }

        auto &file = overrides_.file;
        const uint64_t used = overrides_.count();
        file.lines.store(read_, std::memory_order_relaxed);
        file.superseded.store(unplaced_ == 0 ? read_ - used : 0, std::memory_order_relaxed);

        /* A file that another program writes may grow meanwhile, and is read again soon. */
        return mark_current(zone_, end_) || (repair_ == OverridesRepair::kAll && failed("fstat()"));
    }

    bool failed(const char *what) const {
        ngx_log_error(NGX_LOG_ALERT, log_, ngx_errno,
                      "limits of zone \"%V\" were not read: %s \"%V\" failed", &zone_.name, what,
                      &zone_.override_file.path);
        return false;
    }

    ngx_log_t *log_;
    ZoneConf &zone_;
    Overrides &overrides_;
    OverridesRepair repair_;
    char *buffer_ = nullptr;
    uint64_t begin_ = 0; /* the valid lines: begin_ .. end_ - 1, in bytes */
    uint64_t end_ = 0;
    bool is_cut_ = false;
    uint64_t read_ = 0;
    uint64_t wrong_ = 0;
    uint64_t unplaced_ = 0;
    uint64_t first_unplaced_ = 0;
};

} // namespace

OverrideLine::Kind read_line(const ZoneConf &zone, char *text, size_t size, OverrideLine *line) {
    const auto kind = line->parse(text, size, zone.policy, zone.limit_max());
    if (kind != OverrideLine::Kind::kOverride) { return kind; }

    /* The bytes of an address replace its text.  No address is longer than `buf`. */
    u_char buf[64];
    ngx_str_t key = to_str(line->key);
    if (zone.keys != KeyKind::kTexts && key.len <= sizeof(buf)) {
        append(buf, line->key);
        key.data = buf;
    }

    if (!read_key(zone, &key)) {
        line->error = "the key is no address";
        return OverrideLine::Kind::kWrong;
    }

    line->hash = zone.memory.table->hash(view(key));
    return kind;
}

bool load_overrides(ngx_log_t *log, ZoneConf &zone, OverridesRepair repair, uint64_t *unplaced) {
    Load load(log, zone, repair);
    const bool done = load.run();
    if (unplaced != nullptr) { *unplaced = load.unplaced(); }

    return done;
}

void enter_overrides(ngx_log_t *log, ZoneConf &zone) {
    const auto &file = zone.override_file;
    const auto *former = zone.former;
    const ngx_fd_t former_fd = former != nullptr ? former->override_file.fd : NGX_INVALID_FILE;
    zone.former = nullptr;
    if (file.fd == NGX_INVALID_FILE) { return; }

    /* Workers of the last cycle may have another file, but the same memory. */
    const bool has_other = former_fd != NGX_INVALID_FILE && !is_same_file(file.fd, former_fd);

    OverridesLock former_lock(former_fd);
    OverridesLock lock(file.fd);
    if ((has_other && !former_lock.wait_briefly(true)) || !lock.wait_briefly(!ngx_test_config)) {
        ngx_log_error(NGX_LOG_ALERT, log, ngx_errno,
                      "limits of zone \"%V\" were not read: fcntl() \"%V\" failed", &zone.name,
                      &file.path);
        return;
    }

    const auto repair = ngx_test_config ? OverridesRepair::kNothing : OverridesRepair::kAll;
    (void)load_overrides(log, zone, repair);
}

} // namespace limit_sliding
