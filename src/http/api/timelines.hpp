/* Copyright (C) the limit_sliding authors */

/* The last ten minutes of the zones and of each Redis. */

#pragma once

#include "http/conf/configuration.hpp"
#include "http/json/json.hpp"

namespace limit_sliding {

/* Starts a timer in this worker that records all timelines.  One worker is enough. */
void start_timelines(const MainConf &main);

/* Records all timelines, so that reports have the present period as well. */
void record_timelines(const MainConf &main);

/* Write a timeline as a field of the present object. */
void write_timeline(Json &json, const ZoneTimeline &timeline);
void write_timeline(Json &json, const RedisTimeline &timeline);

} // namespace limit_sliding
