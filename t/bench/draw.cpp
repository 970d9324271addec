/* Copyright (C) the limit_sliding authors */

#include "draw.hpp"

#include <math.h>

static uint64_t draw(void) {
    static uint64_t x = 88172645463325252;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;

    return x;
}

void draw_uniform(uint32_t *sequence, uint64_t keys) {
    for (unsigned i = 0; i < SEQUENCE; i++) {
        sequence[i] = (uint32_t)(draw() % keys);
    }
}

/* J. Gray et al., "Quickly generating billion-record synthetic databases". */

void draw_zipf(uint32_t *sequence, uint64_t keys, double theta) {
    double zeta = 0;

    for (uint64_t i = 1; i <= keys; i++) {
        zeta += pow((double)i, -theta);
    }

    double alpha = 1 / (1 - theta);
    double zeta2 = 1 + pow(0.5, theta);
    double eta = (1 - pow(2 / (double)keys, 1 - theta)) / (1 - zeta2 / zeta);

    for (unsigned i = 0; i < SEQUENCE; i++) {
        double u = (double)(draw() >> 11) / 9007199254740992.0;
        double rank = u * zeta < 1       ? 0
                      : u * zeta < zeta2 ? 1
                                         : (double)keys * pow(eta * u - eta + 1, alpha);

        sequence[i] = (uint32_t)fmin(rank, (double)keys - 1);
    }
}
