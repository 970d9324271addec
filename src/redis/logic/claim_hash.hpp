/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/claim.hpp"

namespace limit_sliding {

/* Returns a hash of what n >= 1 claims ask: keys, limits, costs, in this order.
 * Equal claims have equal ones, in all workers and over reloads. */
uint64_t claim_hash(const Claim *claims, size_t n);

} // namespace limit_sliding
