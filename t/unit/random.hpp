/* Copyright (C) the limit_sliding authors */

#pragma once

#include <stdint.h>

#include "core/limiter/limiter.hpp"

using namespace limit_sliding;

/* splitmix64: the same numbers on every machine. */
static inline uint64_t random_next(uint64_t *random) {
    uint64_t z = *random += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;

    return z ^ z >> 31;
}

/* 0 .. n - 1; the bias of the remainder does not matter here. */
static inline uint64_t random_below(uint64_t *random, uint64_t n) {
    return random_next(random) % n;
}

/* Uniform in its number of digits, so that small ones come as often. */
static inline uint64_t random_scale(uint64_t *random, uint64_t low, uint64_t high) {
    uint64_t value = low;

    while (value < high && random_below(random, 8) != 0) {
        value += random_below(random, value) + 1;
    }

    return value > high ? high : value;
}

static inline uint64_t random_window_ms(uint64_t *random) {
    static const uint64_t usual_ms[]
        = {kWindowMinMs, 1000, 10000, 60000, 3600000, 86400000, kWindowMaxMs};

    return random_below(random, 2)
               ? usual_ms[random_below(random, sizeof(usual_ms) / sizeof(usual_ms[0]))]
               : random_scale(random, kWindowMinMs, kWindowMaxMs);
}
