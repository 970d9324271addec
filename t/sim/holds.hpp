/* Copyright (C) the limit_sliding authors */

/* Seeds of units that requests in flight hold. */

#pragma once

#include "scenario.hpp"

namespace sim {

/* Runs a seed, and writes what does not hold. */
Outcome run_hold_seed(uint64_t seed);

} // namespace sim
