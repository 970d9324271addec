/* Copyright (C) the limit_sliding authors */

#include "http/values/local_time.hpp"

#include <time.h>

#include "ngx/memory.hpp"

namespace limit_sliding {
namespace {

/* The state of a key may be of a calendar year that began before the last one.  A configuration
 * is hardly in use for longer than 20 years. */
constexpr int64_t kYearMs = int64_t{366} * 24 * 60 * 60 * 1000;
constexpr int64_t kYearsBefore = 2;
constexpr int64_t kYearsAfter = 20;

/* Time zones change their offset twice a year, or four times if summer time omits Ramadan. */
constexpr size_t kMost = 5 * (kYearsBefore + kYearsAfter);

int64_t offset_ms_at(int64_t utc_ms) {
    time_t utc_s = utc_ms / 1000;
    struct tm tm;
    localtime_r(&utc_s, &tm);
    return int64_t{tm.tm_gmtoff} * 1000;
}

} // namespace

const UtcOffsets *find_local_offsets(ngx_pool_t *pool) {
    auto *all = alloc<UtcOffset>(pool, kMost);
    auto *found = create<UtcOffsets>(pool);
    if (all == nullptr || found == nullptr) { return nullptr; }

    int64_t now_ms = int64_t{ngx_time()} * 1000;
    *found = UtcOffsets::find(now_ms - kYearsBefore * kYearMs, now_ms + kYearsAfter * kYearMs,
                              offset_ms_at, all, kMost);
    return found;
}

} // namespace limit_sliding
