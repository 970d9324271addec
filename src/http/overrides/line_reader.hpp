/* Copyright (C) the limit_sliding authors */

/* Reads a file line by line. */

#pragma once

#include <algorithm>
#include <cstring>

#include "http/overrides/limits_file.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

class LineReader {
public:
    /* Exceeds any valid line, in which each byte of the longest key may take three bytes. */
    static constexpr size_t kBufferBytes = 512 * 1024;

    /* Reads the bytes from .. to - 1, which begin with a line.  The end may be within a line. */
    LineReader(ngx_fd_t fd, char *buffer, uint64_t from, uint64_t to)
        : fd_(fd), buffer_(buffer), base_(from), to_(to) {}

    /* Reads the next line.  Returns false if there is none, or if the file cannot be read. */
    bool next() {
        size_t scanned = 0;
        number++;
        at = base_ + begin_;
        is_long = false;

        for (;;) {
            auto *end = static_cast<char *>(
                std::memchr(buffer_ + begin_ + scanned, '\n', end_ - begin_ - scanned));
            if (end != nullptr) { return set_line(end - buffer_, true); }

            scanned = end_ - begin_;
            const ssize_t n = read(&scanned);
            if (n < 0) { return false; }

            if (n == 0) { return (end_ != 0 || is_long) && set_line(end_, false); }
        }
    }

    char *line;          /* the caller may change the text */
    size_t size;         /* bytes without the newline */
    bool is_long;        /* the line was too long: `line` is its end */
    bool is_complete;    /* the line ends with a newline */
    uint64_t at;         /* offset of the line in the file, in bytes */
    uint64_t number = 0; /* number of the line, from 1 */
    ngx_err_t error = 0; /* errno of the last read; 0: success */

private:
    bool set_line(size_t end, bool complete) {
        line = buffer_ + begin_;
        size = end - begin_;
        is_complete = complete;
        begin_ = end + complete;
        return true;
    }

    /* Moves the present line to the begin of the buffer, and reads more of the file. */
    ssize_t read(size_t *scanned) {
        end_ -= begin_;
        base_ += begin_;
        std::memmove(buffer_, buffer_ + begin_, end_);
        begin_ = 0;

        if (end_ == kBufferBytes) {
            is_long = true;
            base_ += end_;
            end_ = 0;
            *scanned = 0;
        }

        const uint64_t from = base_ + end_;
        const size_t wanted = std::min<uint64_t>(kBufferBytes - end_, to_ - std::min(from, to_));
        const ssize_t n = read_at(fd_, buffer_ + end_, wanted, from);
        error = n < 0 ? ngx_errno : 0;
        end_ += n > 0 ? n : 0;
        return n;
    }

    ngx_fd_t fd_;
    char *buffer_;
    uint64_t base_; /* offset of the buffer in the file */
    uint64_t to_;
    size_t begin_ = 0; /* offset of the next line in the buffer */
    size_t end_ = 0;   /* number of valid bytes in the buffer */
};

} // namespace limit_sliding
