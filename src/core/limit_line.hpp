/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/own_limit.hpp"

namespace limit_sliding {

/*
 * A line of a file of own limits:
 *
 *     KEY  LIMIT  [until=TIME]  [# comment]
 *
 * with blanks between.  Bytes of a key that are not printable ASCII, blanks, "#" and
 * "%" are written as %XX, and any byte may be.  The limit is as OwnLimit::parse()
 * takes it, or "default".  The time is in seconds since 1970, or as
 * 2026-11-22T21:00:00Z.
 */
struct LimitLine {
    static constexpr size_t kKeyMax = 65535;
    static constexpr uint64_t kNoEnd = UINT64_MAX;

    enum class Kind { kNone = 0, kLimit, kWrong };

    std::string_view key;  /* decoded */
    std::string_view text; /* of the limit */
    OwnLimit own;          /* none set: "default" */
    uint64_t until_s;      /* UNIX time, or kNoEnd */
    const char *error;     /* what is wrong */

    /* Parses a line, without its end.  It may decode the key in the line's own
     * bytes.  kNone: there is nothing but blanks and a comment. */
    Kind parse(char *line, size_t size, const Policy &policy, uint64_t limit_max);

    /* Returns the bytes that write() needs at most. */
    size_t size_max() const { return 3 * key.size() + text.size() + 40; }

    /* Writes key, text and end as a line that begins with a blank; returns its
     * bytes. */
    size_t write(char *line) const;
};

} // namespace limit_sliding
