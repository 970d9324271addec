/* Copyright (C) the limit_sliding authors */

/* What stands for NGINX's event loop, clock, sockets and heap.  Its timers, posted
 * events, pools, strings and trees are its own. */

#pragma once

#include <cstddef>
#include <cstdint>

#include "ngx/ngx.hpp"

namespace sim {

void begin_nginx();

/* Sets the pool of the cycle. */
void set_cycle_pool(ngx_pool_t *pool);

/* The clock of workers is this one from now on. */
void set_clock(uint64_t now_us);

/* Sets the clock of workers to the present time, as ngx_time_update() does. */
void update_clock();

/* Sets "timer_resolution". */
void set_timer_resolution(uint64_t ms);

/* Adds so much to the time of day, which the monotonic clock does not follow. */
void step_time_of_day(int64_t seconds);

/* Returns when the next timer ends; UINT64_MAX: there is none. */
uint64_t next_timer_us();
void run_timers();
void run_posted();

/* Returns how many objects of NGINX's heap there are, and the bytes of one of them. */
size_t live_objects(size_t *bytes);

/* Lets so many of 1000 allocations fail. */
void set_failing_allocations(unsigned per_mille);

/* Closes idle connections, as a worker does that is to exit. */
void close_idle();

/* Connections that are open. */
size_t open_connections();

} // namespace sim
