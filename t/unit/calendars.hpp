/* Copyright (C) the limit_sliding authors */

/* Times of UTC, and the offsets of a time zone, for tests of calendars. */

#pragma once

#include <stdlib.h>
#include <time.h>

#include "core/policy/calendar.hpp"

using namespace limit_sliding;

#define HOUR_MS 3600000ull
#define BERLIN "CET-1CEST,M3.5.0,M10.5.0/3"

static const Calendar calendars[]
    = {Calendar::kDay, Calendar::kWeek, Calendar::kMonth, Calendar::kYear};

/* Returns a time of UTC in ms since 1970. */
static inline uint64_t utc(int year, int month, int day, int hour = 0, int minute = 0) {
    struct tm tm = {};

    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    tm.tm_mday = day;
    tm.tm_hour = hour;
    tm.tm_min = minute;

    return static_cast<uint64_t>(timegm(&tm)) * 1000;
}

/* The offsets of a time zone in some years, as libc tells them.  It becomes that of
 * the process. */
struct zoned_t {
    UtcOffset all[200];
    UtcOffsets found;

    zoned_t(const char *name, int from_year, int to_year) {
        setenv("TZ", name, 1);
        tzset();
        found = UtcOffsets::find(static_cast<int64_t>(utc(from_year, 1, 1)),
                                 static_cast<int64_t>(utc(to_year, 1, 1)), offset_ms, all, 200);
    }

    static int64_t offset_ms(int64_t utc_ms) {
        time_t utc_s = utc_ms / 1000;
        struct tm tm;

        localtime_r(&utc_s, &tm);

        return tm.tm_gmtoff * 1000;
    }
};
