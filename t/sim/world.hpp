/* Copyright (C) the limit_sliding authors */

/* The world of one seed: its random numbers, its clock, and what is to happen when.
 * Nothing in it depends on anything but the seed. */

#pragma once

#include <cstdint>
#include <functional>

namespace sim {

/* Returns a number below n, which is not 0, and true in so many of 1000 cases. */
uint64_t below(uint64_t n);
bool chance(unsigned per_mille);
inline uint64_t between(uint64_t least, uint64_t most) { return least + below(most - least + 1); }

/* The true time in microseconds.  Clocks of servers differ from it. */
uint64_t now_us();

/* Has the function called so many microseconds from now, after those of the same time. */
void after(uint64_t us, std::function<void()> what);

/* Begins the world of a seed. */
void begin_world(uint64_t seed);

/* Forgets what is still to happen. */
void end_world();

/* Lets the world and the event loop of NGINX go on for so long. */
void run_for(uint64_t us);

/* Has the worker do that in its next turn of the event loop.  What else happens does not
 * wait for the worker. */
void wake(std::function<void()> what);

/* Lets the worker do nothing for so long, as if it were stopped. */
void stall(uint64_t us);

/* Lets a worker that is stopped go on at once: stops add up. */
void end_stalls();

/* Returns for how long the worker was stopped or busy in all. */
uint64_t stalled_us();

/* How the worker is, until it is told otherwise. */
struct Pace {
    uint64_t clock_age_us; /* its clock is set so often; 0: in each turn */
    unsigned long_turns;   /* of 1000: turns that take long before they end, */
    uint64_t turn_most_us; /* so long at most */
    unsigned stops;        /* of 1000: asks after which it is stopped for a while */
};

extern Pace pace;

/* Writes a line with the time if TRACE=1.  All lines count in trace_hash(). */
[[gnu::format(printf, 1, 2)]] void trace(const char *format, ...);
uint64_t trace_hash();

/* Notes that an invariant does not hold. */
[[gnu::format(printf, 1, 2)]] void broken(const char *format, ...);
bool is_broken();

/* How often things have happened, in all seeds: a fault that never happens tests nothing. */
void count(const char *what);
void print_counts();

} // namespace sim
