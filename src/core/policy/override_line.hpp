/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/policy/override.hpp"

namespace limit_sliding {

/*
 * A line in a file of overrides, with blanks between the fields:
 *
 *     KEY  LIMIT  [until=TIME]  [# comment]
 *
 * A key contains "#", "%", blanks and all bytes but printable ASCII as %XX; any byte may be
 * written so.  The limit is "default" or a text for Override::parse().  The time is in seconds
 * since 1970 or as 2026-11-22T21:00:00Z, until 2106 (kUntilMax).
 */
struct OverrideLine {
    static constexpr size_t kKeyMax = 65535;
    static constexpr uint64_t kUntilMax = UINT32_MAX - 1; /* Overrides stores ends in 32 bits */

    enum class Kind { kNone = 0, kOverride, kWrong };

    std::string_view key;  /* decoded */
    std::string_view text; /* text of the limit */
    Override own;          /* not set: "default" */
    uint64_t until_s;      /* UNIX time of the expiry, or kNoEnd */
    const char *error;     /* reason of kWrong */
    uint64_t hash;         /* Zone::hash() of the key; parse() and write() do not use it */

    /* Parses a line without its newline.  Decodes the key in place.  Returns kNone if the line is
     * blank or a comment. */
    Kind parse(char *line, size_t size, const Policy &policy, uint64_t limit_max);

    /* Returns an upper bound of the bytes that write() needs. */
    size_t size_max() const { return 3 * key.size() + text.size() + 40; }

    /* Writes a line that begins with a blank.  Returns its length in bytes. */
    size_t write(char *line) const;
};

} // namespace limit_sliding
