/* Copyright (C) the limit_sliding authors */

/*
 * The algorithms the naive way, one key under one policy: they keep what the
 * core does not, a log of every admitted request, weigh each by its age and
 * add up, in 128 bits.
 *
 * What is used is given in request-milliseconds: one unit is 1/w of a request,
 * w being the window in milliseconds.  In that unit all five are integers.
 */

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/limiter/limiter.hpp"

using namespace limit_sliding;

#define EXACT_LENGTH 400 /* admitted requests of a key */

__extension__ typedef unsigned __int128 wide_t;

/*
 * The core rounds what is used of a large bucket up, once until it is empty,
 * and by as much up or down when the limit has changed.  It is between
 * EXACT_LEAST, which is the truth while the limit stays, and EXACT_MOST.  For
 * all but large buckets they are the same.
 */
enum exact_side_t { EXACT_LEAST = 0, EXACT_MOST };

struct exact_event_t {
    uint64_t at_ms; /* never below the one before: see exact_record() */
    uint32_t limit;
    uint32_t cost;
    uint64_t part; /* of a counter's window */
};

/* Buckets: what was used at a time. */
struct exact_level_t {
    wide_t used;
    uint64_t at_ms;
};

struct exact_t {
    const Policy *policy;
    uint64_t offset_ms; /* of the time that windows are cut from */
    size_t n;
    exact_event_t event[EXACT_LENGTH];
    unsigned parts;         /* of a counter: those of a window as of the last event */
    size_t first;           /* the oldest event that the window of the last one reaches */
    exact_level_t level[2]; /* after the last event, by side */
    wide_t rounding;        /* the most since the bucket was empty */
    int is_rounded;
};

/* What a request may use at most, in requests. */
uint64_t exact_capacity(const Policy *policy, uint32_t limit);

/* A clock that is behind the last event takes things as of that event. */
wide_t exact_used(const exact_t *exact, uint64_t now_ms, uint32_t limit, exact_side_t side);

int exact_fits(const exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost,
               exact_side_t side);

/* Whole requests left, 0 .. capacity. */
uint64_t exact_left(const exact_t *exact, uint64_t now_ms, uint32_t limit, exact_side_t side);

/* Over the capacity if a request of this cost came in, in 1/1000 request. */
uint64_t exact_excess(const exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost,
                      exact_side_t side);

/* LEAKY_BUCKET: what would be in the queue but for one, in 1/1000 request. */
uint64_t exact_queued(const exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost,
                      exact_side_t side);

/* An admitted request; one of cost 0 leaves no trace. */
void exact_record(exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost);

/* LEAKY_BUCKET: until what is ahead of such a request has left. */
uint64_t exact_delay_ms(const exact_t *exact, uint64_t now_ms, uint32_t limit, uint32_t cost,
                        exact_side_t side);

/*
 * Is the last event within what its algorithm promises of any interval that
 * ends with it?  Looks at nothing but times, costs and limits.
 */
int exact_keeps_promise(const exact_t *exact);
