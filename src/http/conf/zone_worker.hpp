/* Copyright (C) the limit_sliding authors */

/* The parts of zones that belong to one worker, and its work for all of their keys. */

#pragma once

#include "core/facts/offenders.hpp"
#include "core/holds/hold.hpp"
#include "core/policy/statistics.hpp"
#include "ngx/containers.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

struct ZoneConf;
struct OverrideQueue;
struct LuaZone;

using Zones = Array<ZoneConf *>;

/* Paces the lines of one kind that this worker logs, by "every=". */
struct LogPace {
    ngx_msec_t after;   /* earliest time of the next line, in ms of NGINX's clock */
    ngx_uint_t omitted; /* lines omitted since the last one */
};

struct ZoneWorker {
    Statistics *counters;  /* this worker's counters, in shared memory */
    Sampler sampler;       /* samples rejections; takes all if keys may be banned */
    Sampler top_sampler;   /* samples offenders if keys may be banned */
    LogPace decisions;     /* lines about rejections and delays */
    LogPace bad_values;    /* lines about invalid values, which must not displace rejections */
    OverrideQueue *writes; /* API writes; nullptr: none so far */
    Holdings holdings;     /* units of this worker's requests; set if the zone has inflight= */
    LuaZone *lua;          /* the zone as Lua uses it; nullptr: Lua has not asked for it */
};

/* Gives this worker its counters in shared memory. */
void take_statistics(ZoneConf &zone);

/* Starts a timer in this worker that withdraws states that expired long ago, in a megabyte of
 * each zone a minute (Zone::sweep()).  One worker is enough: zones up to 140 GB are swept within
 * 100 days.  There must be at least one zone. */
void start_sweep(const Zones &zones);

/* Lets this worker hold units in zones with inflight=, and starts a timer that gives back the
 * units of workers that have died.  Logs an error and returns false if the worker gets no number of
 * its own. */
bool enter_holds(ngx_log_t *log, const Zones &zones);

} // namespace limit_sliding
