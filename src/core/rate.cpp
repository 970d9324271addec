/*
 * Copyright (C) the limit_sliding authors
 */

#include "core/limiter.hpp"

namespace limit_sliding {

namespace {

constexpr size_t kDigitsMax = 18;

/* The length of the unit that "/s" and its like name; 0: no such unit. */
uint64_t unit_ms(char unit)
{
    switch (unit) {
    case 's':
        return 1000;
    case 'm':
        return 60 * 1000;
    case 'h':
        return 60 * 60 * 1000;
    case 'd':
        return 24 * 60 * 60 * 1000;
    default:
        return 0;
    }
}

} // namespace

int rate_parse(const char *text, size_t bytes, Rate *rate)
{
    uint64_t count = 0;
    uint64_t per_ms = 0;
    size_t digits = 0;

    while (digits < bytes && text[digits] >= '0' && text[digits] <= '9') {
        if (digits == kDigitsMax) {
            return 0;
        }
        count = count * 10 + static_cast<uint64_t>(text[digits++] - '0');
    }

    if (count == 0) {
        return 0;
    }

    if (digits != bytes) {
        if (bytes - digits != 3 || text[digits] != 'r'
            || text[digits + 1] != '/') {
            return 0;
        }

        per_ms = unit_ms(text[digits + 2]);
        if (per_ms == 0) {
            return 0;
        }
    }

    rate->count = count;
    rate->per_ms = per_ms;

    return 1;
}

uint64_t rate_limit(const Rate *rate, uint64_t window_ms)
{
    if (rate->per_ms == 0) {
        return rate->count;
    }

    uint64_t whole = rate->count / rate->per_ms;
    uint64_t rest = rate->count % rate->per_ms * window_ms / rate->per_ms;

    if (whole > (UINT64_MAX - rest) / window_ms) {
        return UINT64_MAX;
    }

    return whole * window_ms + rest;
}

} // namespace limit_sliding
