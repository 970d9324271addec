/* Copyright (C) the limit_sliding authors */

/* A clock with a finer resolution than NGINX's, whose time stands still within an event. */

#pragma once

#include <time.h>

#include <cstdint>

namespace limit_sliding {

/* Returns the ns since a fixed moment. */
inline uint64_t clock_ns() {
    timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

inline uint64_t clock_us() { return clock_ns() / 1000; }

} // namespace limit_sliding
