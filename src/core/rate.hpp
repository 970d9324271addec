/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>
#include <string_view>

namespace limit_sliding {

/* A rate as it is configured. */
struct Rate {
    uint64_t count;  /* requests, 1 or more */
    uint64_t per_ms; /* in that time; 0: a bare N, per window */

    /* Parses "Nr/s", "Nr/m", "Nr/h", "Nr/d" or a bare "N", N a positive integer
     * without sign or leading blanks, of at most 18 digits.  Returns false for
     * anything else, and leaves the rate alone. */
    bool parse(std::string_view text);

    /* Returns floor(rate x window), saturated at UINT64_MAX: the limit of one
     * window.  The caller checks it against Policy::limit_max(). */
    uint64_t limit(uint64_t window_ms) const;
};

} // namespace limit_sliding
