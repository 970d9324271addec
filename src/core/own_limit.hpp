/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>
#include <string_view>

#include "core/policy.hpp"
#include "core/window.hpp"

namespace limit_sliding {

/* The limit that a single key, or a single request, has in place of its zone's. */
struct OwnLimit {
    uint64_t limit; /* requests a window; or kLimitUnset: none, so that the zone's
                       applies; kUnlimited, "off"; kBlocked, "0" */
    Window window;  /* none: the zone's */

    bool is_set() const { return limit != kLimitUnset; }
    bool is_unlimited() const { return limit == kUnlimited; }
    bool is_blocked() const { return limit == kBlocked; }

    /* True if it is a number. */
    bool is_limited() const { return limit - 1 < kBlocked - 1; }

    bool operator==(const OwnLimit &other) const {
        return limit == other.limit && window == other.window;
    }
    bool operator!=(const OwnLimit &other) const { return !(*this == other); }

    /* Parses "off", "0", a rate as "10r/s" or "100" in the policy's window, or
     * "N/TIME", as "1000/1h" or, if the algorithm has windows of the calendar,
     * "5000/month".  A window that is the policy's is not told from it.  Returns
     * false if the text is none of these, or the limit is not in 1 .. limit_max,
     * and leaves the own limit alone. */
    bool parse(std::string_view text, const Policy &policy, uint64_t limit_max);
};

/* Returns the policy of a key that has this window, if any is given, in place of
 * the zone's, which is the policy's. */
Policy with_window(const Policy &policy, const Window &window);

} // namespace limit_sliding
