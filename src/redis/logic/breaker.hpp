/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

namespace limit_sliding {

/* It opens after so many failures in a row, and wants a probe so often. */
constexpr auto kBreakerFailures = 5;
constexpr auto kBreakerIntervalMs = 1000;

enum class BreakerState {
    kClosed = 0,
    kOpen,
    kProbe /* open, and the caller is to send a probe: one of all callers an
              interval */
};

/* A circuit breaker in shared memory, closed if zeroed.  It is two words, each
 * valid whatever the other.  Whoever moves the time of the next probe forward
 * sends it; if he dies, the next one is due an interval later all the same. */
class Breaker {
public:
    BreakerState check(uint64_t now_ms);

    /* Returns when the next probe is due, while it is open. */
    uint64_t probe_ms() const;

    bool is_open() const;

    /* Returns true if that closed it. */
    bool succeeded();

    /* Returns true if that opened it.  `random`, any number, spreads the probes
     * of many servers over the last quarter of the interval. */
    bool failed(uint64_t now_ms, uint32_t random);

private:
    uint64_t failures_; /* in a row */
    uint64_t probe_ms_; /* when the next probe is due */
};

} // namespace limit_sliding
