/* Copyright (C) the limit_sliding authors */

/* A monotonic clock in ns.  NGINX's clock has ms, and stands still while an event is handled. */

#pragma once

#include <time.h>

#include <cstdint>

namespace limit_sliding {

inline uint64_t clock_ns() {
    timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

inline uint64_t clock_us() { return clock_ns() / 1000; }

} // namespace limit_sliding
