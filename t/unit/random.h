/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_UNIT_RANDOM_H
#define LIMIT_SLIDING_UNIT_RANDOM_H

#include <stdint.h>

/* splitmix64: the same numbers on every machine. */
static inline uint64_t random_next(uint64_t *random)
{
    uint64_t z = *random += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;

    return z ^ z >> 31;
}

/* 0 .. n - 1; the bias of the remainder does not matter here. */
static inline uint64_t random_below(uint64_t *random, uint64_t n)
{
    return random_next(random) % n;
}

#endif
