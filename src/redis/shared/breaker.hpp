/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/base/atomics.hpp"

namespace limit_sliding {

/* The number of consecutive failures that opens the breaker, and the ms between probes then. */
constexpr auto kBreakerFailures = 5;
constexpr auto kBreakerIntervalMs = 1000;

enum class BreakerState {
    kClosed = 0,
    kOpen,
    kProbe /* open, and the caller sends the only probe of this interval */
};

/* A circuit breaker in shared memory, closed if zeroed.  Each of its words is valid alone.  The
 * process that moves the time of the next probe forward sends the present probe.  If this process
 * dies, another process sends the next probe an interval later. */
class Breaker {
public:
    BreakerState check(uint64_t now_ms);

    /* Returns the time in ms at which the next probe is due, while the breaker is open. */
    uint64_t probe_ms() const { return load(&probe_ms_); }

    /* Returns the time in ms at which the breaker opened, while it is open. */
    uint64_t opened_ms() const { return load(&opened_ms_); }

    bool is_open() const { return load(&failures_) >= kBreakerFailures; }

    /* Notes a success.  Returns true if that closed the breaker. */
    bool succeeded() {
        return load(&failures_) != 0 && shared(&failures_).exchange(0) >= kBreakerFailures;
    }

    /* Notes a failure.  Returns true if that opened the breaker.  `random`, any number, spreads the
     * probes of many servers over the last quarter of the interval. */
    bool failed(uint64_t now_ms, uint32_t random);

private:
    uint64_t failures_;  /* consecutive failures */
    uint64_t probe_ms_;  /* time of the next probe, valid while the breaker is open */
    uint64_t opened_ms_; /* time of the opening, valid while the breaker is open */
};

} // namespace limit_sliding
