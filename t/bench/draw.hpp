/* Copyright (C) the limit_sliding authors */

/* Keys as they are asked for, drawn in advance. */

#pragma once

#include <stdint.h>

#define SEQUENCE (1u << 20)

/* A SEQUENCE of numbers below `keys`, each as likely as the others. */
void draw_uniform(uint32_t *sequence, uint64_t keys);

/* The n-th of them as likely as n^-theta, theta in 0 .. 1. */
void draw_zipf(uint32_t *sequence, uint64_t keys, double theta);
