/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>
#include <string_view>

#include "core/policy/window.hpp"

namespace limit_sliding {

/* A rate from the configuration. */
struct Rate {
    uint64_t count;  /* requests, 1 or more */
    uint64_t per_ms; /* time for `count` requests; 0: a window */

    /* Parses "Nr/s", "Nr/m", "Nr/h", "Nr/d" or "N", with a positive integer N of up to 18 digits,
     * no sign and no blanks.  Returns false for other texts; the rate then keeps its value. */
    bool parse(std::string_view text);

    /* Parses a rate, or "N/TIME" ("5/15m", "5000/month"), which sets the window as well.  Returns
     * false for other texts; both then keep their values. */
    bool parse(std::string_view text, Window *window);

    /* Returns floor(rate x window), at most UINT64_MAX; 0 for a rate without a window.  The caller
     * compares with Policy::limit_max(). */
    uint64_t limit(uint64_t window_ms) const;
};

} // namespace limit_sliding
