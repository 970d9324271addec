/* Copyright (C) the limit_sliding authors */

#pragma once

#include "http/conf/zone.hpp"

namespace limit_sliding {

/* Starts a timer in this worker that withdraws states that expired long ago, in a megabyte of
 * each zone a minute (Zone::sweep()).  One worker is enough: zones up to 140 GB are swept within
 * 100 days.  There must be at least one zone. */
void start_sweep(const Zones &zones);

} // namespace limit_sliding
