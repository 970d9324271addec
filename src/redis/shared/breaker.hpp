/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

namespace limit_sliding {

/* Failures in a row that open the breaker, and the time between probes then. */
constexpr auto kBreakerFailures = 5;
constexpr auto kBreakerIntervalMs = 1000;

enum class BreakerState {
    kClosed = 0,
    kOpen,
    kProbe /* open, and this caller, the only one in an interval, sends a probe */
};

/* A circuit breaker in shared memory, closed if zeroed.  It has two words, each
 * of which is valid whatever the other is.  The process that moves the time of
 * the next probe forward sends it; if it dies, the next probe is still due an
 * interval later. */
class Breaker {
public:
    BreakerState check(uint64_t now_ms);

    /* Returns when the next probe is due, while it is open. */
    uint64_t probe_ms() const;

    bool is_open() const;

    /* Notes a success.  Returns true if that closed the breaker. */
    bool succeeded();

    /* Notes a failure.  Returns true if that opened the breaker.  `random`, any
     * number, spreads the probes of many servers over the last quarter of the
     * interval. */
    bool failed(uint64_t now_ms, uint32_t random);

private:
    uint64_t failures_; /* in a row */
    uint64_t probe_ms_; /* when the next probe is due */
};

} // namespace limit_sliding
