/* Copyright (C) the limit_sliding authors */

/* What is on its way between nodes and Redis. */

#pragma once

#include <math.h>
#include <stdint.h>

struct event_t {
    double at_us;
    uint32_t node;
};

/* In order of time, as all calls take equally long. */
struct events_t {
    event_t *events; /* a node has one call under way at most */
    uint32_t size;
    uint32_t first;
    uint32_t n;
};

static inline void push(events_t *events, double at_us, uint32_t node) {
    uint32_t last = events->first + events->n++;

    events->events[last < events->size ? last : last - events->size] = (event_t){at_us, node};
}

static inline event_t pop(events_t *events) {
    event_t event = events->events[events->first];

    events->n--;
    events->first = events->first + 1 < events->size ? events->first + 1 : 0;

    return event;
}

static inline double next_us(const events_t *events) {
    return events->n ? events->events[events->first].at_us : INFINITY;
}
