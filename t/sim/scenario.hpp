/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

namespace sim {

struct Outcome {
    bool is_broken;
    uint64_t hash; /* of all that happened */
};

/* Runs a seed, and writes what does not hold. */
Outcome run_seed(uint64_t seed);

} // namespace sim
