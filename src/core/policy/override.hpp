/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/policy/policy.hpp"
#include "core/policy/window.hpp"

namespace limit_sliding {

static_assert(kLimitMax < (kLimitBlocked & UINT32_MAX),
              "kLimitBlocked and kLimitOff are no other limits");

/* The end of an override that does not expire, in s since 1970. */
constexpr uint64_t kNoEnd = UINT64_MAX;

/* A limit of a single key, or of a single request, that replaces the limit of the zone. */
struct Override {
    uint64_t limit; /* requests a window; kLimitUnset: no override; kLimitOff: "off"; kLimitBlocked:
                       "0" */
    Window window;  /* not given: the window of the zone */

    bool is_set() const { return limit != kLimitUnset; }

    bool operator==(const Override &other) const {
        return limit == other.limit && window == other.window;
    }
    bool operator!=(const Override &other) const { return !(*this == other); }

    /* Convert an override to and from a number: code of the window 32 | limit 32, in which limits
     * above kLimitMax become kLimitMax.  The code of no override is 0. */
    uint64_t code() const {
        const uint64_t word
            = limit < kLimitBlocked ? std::min(limit, kLimitMax) : limit & UINT32_MAX;
        return static_cast<uint64_t>(window.code()) << 32 | word;
    }

    static Override from_code(uint64_t code) {
        const uint64_t word = code & UINT32_MAX;
        return {word < (kLimitBlocked & UINT32_MAX) ? word : word | ~uint64_t{UINT32_MAX},
                Window::from_code(static_cast<uint32_t>(code >> 32))};
    }

    /* Parses "off", "0", a rate ("10r/s"), a number of requests in the policy's window ("100"), or
     * "N/TIME" ("1000/1h"; for algorithms with calendar windows also "5000/month").  In a zone with
     * inflight=, a limit is a number alone.  A window
     * equal to the policy's is stored as not given.  Returns false for other texts and for limits
     * outside 1 .. limit_max; the override then keeps its value. */
    bool parse(std::string_view text, const Policy &policy, uint64_t limit_max);
};

/* Returns true if a window is given, and is not the policy's. */
inline bool is_own_window(const Policy &policy, const Window &window) {
    return window.is_given() && window != policy.window();
}

/* Returns the policy of keys with this window; the zone's policy if no window is given. */
Policy with_window(const Policy &policy, const Window &window);

} // namespace limit_sliding
