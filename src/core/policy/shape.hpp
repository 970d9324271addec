/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/policy/policy.hpp"

namespace limit_sliding {

/*
 * The shape of a state: the settings of its zone that make the states of a key comparable.  The
 * name of a state in Redis ends with the shape, so nodes whose shapes differ count apart.
 *
 *   c60s, c60s.10      COUNTER, with a given precision
 *   l60s               LOG
 *   f60s, fmonth       FIXED, of a length, or of the calendar in UTC
 *   fmonth.local       FIXED, of the calendar in local time
 *   t1s, b1s           TOKEN_BUCKET and LEAKY_BUCKET
 *   c100ms             a window that has no whole number of seconds
 *   inflight           units in use
 *
 * Limits, bursts and strictness may differ: they are rules for the same counts.  call.lua makes
 * the shapes of the windows of single keys.
 */
class Shape {
public:
    explicit Shape(const Policy &policy);

    std::string_view text() const { return {text_, bytes_}; }

private:
    void add(std::string_view text);
    void add(uint64_t number);

    char text_[sizeof("c2592000000ms.4294967295")];
    size_t bytes_ = 0;
};

} // namespace limit_sliding
