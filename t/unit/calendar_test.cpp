/* Copyright (C) the limit_sliding authors */

/* Windows of the calendar, compared with what libc says of times. */

#include "calendars.hpp"
#include "random.hpp"
#include "support.hpp"

namespace {

/* Returns the number of a window as libc's calendar tells it. */
uint64_t number_of(Calendar kind, struct tm tm) {
    if (kind == Calendar::kYear) { return static_cast<uint64_t>(tm.tm_year - 70); }

    if (kind == Calendar::kMonth) {
        return static_cast<uint64_t>((tm.tm_year - 70) * 12 + tm.tm_mon);
    }

    uint64_t day = utc(tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday) / DAY_MS;
    uint64_t from_monday = (static_cast<uint64_t>(tm.tm_wday) + 6) % 7;

    return kind == Calendar::kDay ? day : (day - from_monday + 3) / 7;
}

uint64_t libc_number(Calendar kind, bool is_local, uint64_t utc_ms) {
    time_t utc_s = static_cast<time_t>(utc_ms / 1000);
    struct tm tm;
    (is_local ? localtime_r : gmtime_r)(&utc_s, &tm);
    return number_of(kind, tm);
}

void compare(Calendar kind, const UtcOffsets *offsets, uint64_t utc_ms) {
    CalendarWindow window = calendar_window(kind, offsets, utc_ms);
    bool is_local = offsets != nullptr;

    assert_int_equal(window.number, libc_number(kind, is_local, utc_ms));
    assert_int_equal(window.number, calendar_number(kind, offsets, utc_ms));
    assert_true(window.begin_ms <= utc_ms && utc_ms < window.end_ms);
    assert_int_equal(libc_number(kind, is_local, window.begin_ms), window.number);
    assert_int_equal(libc_number(kind, is_local, window.begin_ms - 1), window.number - 1);
    assert_int_equal(libc_number(kind, is_local, window.end_ms - 1), window.number);
    assert_int_equal(libc_number(kind, is_local, window.end_ms), window.number + 1);
}

void compare_at_random(const UtcOffsets *offsets, uint64_t from_ms, uint64_t to_ms) {
    uint64_t random = 1;

    for (int i = 0; i < 3000; i++) {
        uint64_t utc_ms = from_ms + random_below(&random, to_ms - from_ms);

        for (Calendar kind : calendars) {
            compare(kind, offsets, utc_ms);
        }
    }
}

void is_the_calendar_of_libc(void **) {
    compare_at_random(nullptr, utc(1971, 2, 1), utc(2399, 1, 1));
}

/* The rules are as in 2026, so that this needs no files of time zones; with these
 * files the names have more. */
void is_the_local_calendar_of_libc(void **) {
    static const char *const zones[] = {
        BERLIN,
        "UTC0",
        "EST5EDT,M3.2.0,M11.1.0",                       /* New York */
        "IST-5:30",                                     /* Kolkata */
        "<+1245>-12:45<+1345>,M9.5.0/2:45,M4.1.0/3:45", /* Chatham Islands */
        "AEST-10AEDT,M10.1.0,M4.1.0/3",                 /* Sydney */
        "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",         /* Lord Howe: by half an hour */
        "<-04>4<-03>,M9.1.6/24,M4.1.6/24",              /* Santiago: at midnight */
        "EET-2EEST,M4.5.5/0,M10.5.4/24",                /* Cairo: the same */
        "IST-1GMT0,M10.5.0,M3.5.0/1",                   /* Dublin: its winter is the exception */
        "Europe/Berlin",
        "America/Santiago",
        "Africa/Cairo",
        "Africa/Casablanca", /* changes with the month of Ramadan */
        "Asia/Tehran",
        "Antarctica/Troll",
        "America/Sao_Paulo",
    };

    for (const char *zone : zones) {
        zoned_t zoned(zone, 2001, 2036);
        assert_true(zoned.found.n < LENGTH(zoned.all));
        compare_at_random(&zoned.found, utc(2003, 1, 1), utc(2035, 1, 1));

        for (size_t i = 1; i < zoned.found.n; i++) {
            auto change_ms = static_cast<uint64_t>(zoned.found.offsets[i].since_ms);

            if (change_ms < utc(2003, 1, 1) || change_ms > utc(2035, 1, 1)) { continue; }

            for (uint64_t minute = 0; minute < 300; minute += 15) {
                compare(Calendar::kDay, &zoned.found, change_ms + minute * 60000 - 2 * HOUR_MS);
                compare(Calendar::kDay, &zoned.found, change_ms + minute * 60000 - 1);
            }
        }
    }
}

void days_have_23_to_25_hours(void **) {
    zoned_t berlin(BERLIN, 2020, 2030);

    auto hours = [&](uint64_t utc_ms) {
        return calendar_window(Calendar::kDay, &berlin.found, utc_ms).length_ms() / HOUR_MS;
    };

    assert_int_equal(hours(utc(2026, 3, 28, 22, 59)), 24);
    assert_int_equal(hours(utc(2026, 3, 28, 23, 0)), 23);
    assert_int_equal(hours(utc(2026, 3, 29, 12)), 23);
    assert_int_equal(hours(utc(2026, 3, 29, 21, 59)), 23);
    assert_int_equal(hours(utc(2026, 3, 29, 22, 0)), 24);
    assert_int_equal(hours(utc(2026, 10, 24, 21, 59)), 24);
    assert_int_equal(hours(utc(2026, 10, 24, 22, 0)), 25);
    assert_int_equal(hours(utc(2026, 10, 25, 22, 59)), 25);
    assert_int_equal(hours(utc(2026, 10, 25, 23, 0)), 24);
}

void years_and_months_have_their_days(void **) {
    auto days = [](Calendar kind, uint64_t utc_ms) {
        return calendar_window(kind, nullptr, utc_ms).length_ms() / DAY_MS;
    };

    assert_int_equal(days(Calendar::kMonth, utc(2026, 2, 28, 23, 59)), 28);
    assert_int_equal(days(Calendar::kMonth, utc(2024, 2, 29, 23, 59)), 29);
    assert_int_equal(days(Calendar::kMonth, utc(2024, 3, 1)), 31);
    assert_int_equal(days(Calendar::kMonth, utc(2100, 2, 10)), 28);
    assert_int_equal(days(Calendar::kMonth, utc(2000, 2, 10)), 29);
    assert_int_equal(days(Calendar::kYear, utc(2024, 2, 29)), 366);
    assert_int_equal(days(Calendar::kYear, utc(2025, 1, 1)), 365);
    assert_int_equal(days(Calendar::kYear, utc(2100, 12, 31)), 365);

    /* 4 January 2027 is a Monday */
    CalendarWindow week = calendar_window(Calendar::kWeek, nullptr, utc(2027, 1, 3, 23, 59));
    assert_int_equal(week.begin_ms, utc(2026, 12, 28));
    assert_int_equal(week.end_ms, utc(2027, 1, 4));
}

void has_windows_from_1970_on(void **) {
    zoned_t west("<-11>11", 2020, 2021);
    zoned_t east("<+14>-14", 2020, 2021);
    const UtcOffsets *const all[] = {&west.found, &east.found, nullptr};

    for (Calendar kind : calendars) {
        for (const UtcOffsets *offsets : all) {
            CalendarWindow first = calendar_window(kind, offsets, 0);
            assert_int_equal(first.number, 0);
            assert_int_equal(first.begin_ms, 0);
            assert_true(first.end_ms > 0);
            assert_int_equal(calendar_number(kind, offsets, first.end_ms - 1), 0);
            assert_int_equal(calendar_number(kind, offsets, first.end_ms), 1);
        }
    }
}

/* A clock that is put back from 00:01 to 23:01, as that of Saint John's was, shows
 * two days once more. */
void never_moves_back(void **) {
    UtcOffset offsets[] = {{0, 0, 0}, {static_cast<int64_t>(utc(2026, 11, 1, 0, 1)), -3600000, 0}};
    UtcOffsets found = UtcOffsets::of(offsets, 2);
    uint64_t last = 0;

    for (uint64_t ms = utc(2026, 10, 31, 22); ms < utc(2026, 11, 2, 3); ms += 20000) {
        CalendarWindow day = calendar_window(Calendar::kDay, &found, ms);

        assert_true(day.number >= last);
        assert_true(day.begin_ms <= ms && ms < day.end_ms);
        last = day.number;
    }

    assert_int_equal(calendar_begin_ms(Calendar::kDay, &found, utc(2026, 11, 1) / DAY_MS),
                     utc(2026, 11, 1));
    assert_int_equal(calendar_begin_ms(Calendar::kDay, &found, utc(2026, 11, 2) / DAY_MS),
                     utc(2026, 11, 2, 1));
}

/* Samoa had no 30 December 2011. */
void leaves_out_a_day_that_was_not(void **) {
    uint64_t change_ms = utc(2011, 12, 30, 10);
    UtcOffset offsets[]
        = {{0, -10 * 3600000, 0}, {static_cast<int64_t>(change_ms), 14 * 3600000, 0}};
    UtcOffsets found = UtcOffsets::of(offsets, 2);
    CalendarWindow before = calendar_window(Calendar::kDay, &found, change_ms - 1);
    CalendarWindow after = calendar_window(Calendar::kDay, &found, change_ms);

    assert_int_equal(before.number, utc(2011, 12, 29) / DAY_MS);
    assert_int_equal(before.end_ms, change_ms);
    assert_int_equal(after.number, utc(2011, 12, 31) / DAY_MS);
    assert_int_equal(after.begin_ms, change_ms);
    assert_int_equal(after.length_ms(), DAY_MS);
}

/* Of more changes than there is room for, the first ones are known. */
void finds_no_more_than_has_room(void **) {
    auto hour_of_year = [](int64_t ms) { return ms / int64_t{31536000000} * 3600000; };
    UtcOffset offsets[4] = {};
    UtcOffsets found = UtcOffsets::find(0, int64_t{20} * 31536000000, hour_of_year, offsets, 3);

    assert_int_equal(found.n, 3);
    assert_int_equal(offsets[2].since_ms, 2 * 31536000000);
    assert_int_equal(offsets[3].since_ms, 0);
    assert_int_equal(offsets[3].offset_ms, 0);
}

void tells_how_long_a_window_is(void **) {
    zoned_t berlin(BERLIN, 2020, 2022);
    Policy policy = {.window_ms = 60000, .algorithm = Algorithm::kFixed};

    assert_int_equal(policy.length_ms(utc(2021, 3, 28, 12)), 60000);

    policy.calendar = Calendar::kDay;
    assert_int_equal(policy.length_ms(utc(2021, 3, 28, 12)), DAY_MS);

    policy.offsets = &berlin.found;
    assert_int_equal(policy.length_ms(utc(2021, 3, 28, 12)), DAY_MS - HOUR_MS);
}

void keeps_to_the_last_offset(void **) {
    zoned_t berlin(BERLIN, 2020, 2022);

    assert_int_equal(berlin.found.n, 5);
    assert_int_equal(berlin.found.local_ms(utc(2031, 7, 1)), utc(2031, 7, 1, 1));
    assert_int_equal(berlin.found.local_ms(utc(2011, 7, 1)), utc(2011, 7, 1, 1));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(is_the_calendar_of_libc),
        cmocka_unit_test(is_the_local_calendar_of_libc),
        cmocka_unit_test(days_have_23_to_25_hours),
        cmocka_unit_test(years_and_months_have_their_days),
        cmocka_unit_test(has_windows_from_1970_on),
        cmocka_unit_test(never_moves_back),
        cmocka_unit_test(leaves_out_a_day_that_was_not),
        cmocka_unit_test(finds_no_more_than_has_room),
        cmocka_unit_test(tells_how_long_a_window_is),
        cmocka_unit_test(keeps_to_the_last_offset),
    };

    return cmocka_run_group_tests_name("calendar", tests, nullptr, nullptr);
}
