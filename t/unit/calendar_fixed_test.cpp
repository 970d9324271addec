/* Copyright (C) the limit_sliding authors */

/* Fixed windows of the calendar, and of any clock that is set back, by a clock of the test's
 * own. */

#include "calendars.hpp"
#include "support.hpp"

namespace {

constexpr size_t kBytes = 32768;

Policy policy_of(Calendar calendar, const UtcOffsets *offsets) {
    Policy policy = evicting(Window::of(calendar).ms);
    policy.algorithm = Algorithm::kFixed;
    policy.precision = 0;
    policy.calendar = calendar;
    policy.offsets = offsets;
    return policy;
}

/* Calls visit(policy) for each calendar, in UTC and in Berlin. */
template <class Visit>
void each_policy(const Visit &visit) {
    static zoned_t berlin(BERLIN, 2000, 2040);

    for (Calendar calendar : calendars) {
        visit(policy_of(calendar, nullptr));
        visit(policy_of(calendar, &berlin.found));
    }
}

CalendarWindow window_at(const Policy &policy, uint64_t now_ms) {
    return calendar_window(policy.calendar, policy.offsets, now_ms);
}

Verdict describe(const Claim &claim, uint64_t now_ms) { return claim.describe(now_ms); }

/* Every window from 2019 to 2033 admits the limit, and tells its end.  Berlin's
 * clock has been changed 28 times by then. */
void admits_the_limit_in_each_window(void **) {
    each_policy([](const Policy &policy) {
        constexpr uint32_t kLimit = 3;
        Zone *zone = make_zone_for(&policy, kBytes);
        uint64_t now_ms = utc(2019, 2, 13, 11, 30);

        while (now_ms < utc(2033, 1, 1)) {
            CalendarWindow window = window_at(policy, now_ms);

            for (uint32_t i = 0; i < kLimit; i++) {
                Claim claim = acquire(zone, &policy, 1, kLimit, 1, now_ms);
                assert_int_equal(claim.outcome, Outcome::kAdmitted);
                assert_int_equal(describe(claim, now_ms).remaining, kLimit - 1 - i);
                assert_int_equal(describe(claim, now_ms).reset_ms, window.end_ms - now_ms);
                now_ms += (window.end_ms - now_ms) / 3;
            }

            for (uint64_t late_ms : {now_ms, window.end_ms - 1}) {
                Claim claim = acquire(zone, &policy, 1, kLimit, 1, late_ms);
                assert_int_equal(claim.outcome, Outcome::kRejected);
                assert_int_equal(claim.retry_after_ms(late_ms), window.end_ms - late_ms);
                assert_int_equal(describe(claim, late_ms).retry_after_ms, window.end_ms - late_ms);
                assert_int_equal(describe(claim, late_ms).excess, 1000);

                claim = claim_of(zone, &policy, 1, kLimit, 1);
                claim.purpose = Purpose::kLook;
                acquire(&claim, 1, late_ms);
                assert_int_equal(claim.outcome, Outcome::kRejected);
            }

            assert_int_equal(zone->keys(policy, window.end_ms - 1, kLimit, 0, UINT64_MAX), 1);
            assert_int_equal(zone->keys(policy, window.end_ms, kLimit, 0, UINT64_MAX), 0);
            now_ms = window.end_ms;
        }

        free(zone);
    });
}

void knows_the_borders_of_2026(void **) {
    zoned_t berlin(BERLIN, 2025, 2028);

    static const struct {
        Calendar calendar;
        uint64_t first_ms;
        uint64_t next_ms;
    } windows[] = {
        {Calendar::kDay, utc(2026, 3, 28, 23), utc(2026, 3, 29, 22)},   /* 23 h */
        {Calendar::kDay, utc(2026, 10, 24, 22), utc(2026, 10, 25, 23)}, /* 25 h */
        {Calendar::kWeek, utc(2026, 3, 22, 23), utc(2026, 3, 29, 22)},
        {Calendar::kMonth, utc(2026, 1, 31, 23), utc(2026, 2, 28, 23)},
        {Calendar::kMonth, utc(2026, 2, 28, 23), utc(2026, 3, 31, 22)},
        {Calendar::kMonth, utc(2026, 9, 30, 22), utc(2026, 10, 31, 23)},
        {Calendar::kYear, utc(2025, 12, 31, 23), utc(2026, 12, 31, 23)},
    };

    for (const auto &w : windows) {
        Policy policy = policy_of(w.calendar, &berlin.found);
        Zone *zone = make_zone_for(&policy, kBytes);
        uint64_t last_ms = w.next_ms - 1;

        assert_true(admits(zone, &policy, 1, 5, 5, w.first_ms - 1));
        assert_true(admits(zone, &policy, 1, 5, 5, w.first_ms));
        assert_int_equal(acquire(zone, &policy, 1, 5, 1, w.first_ms).retry_after_ms(w.first_ms),
                         w.next_ms - w.first_ms);
        assert_int_equal(acquire(zone, &policy, 1, 5, 1, last_ms).retry_after_ms(last_ms), 1);
        assert_true(admits(zone, &policy, 1, 5, 5, w.next_ms));
        free(zone);
    }
}

void takes_back_within_the_window(void **) {
    each_policy([](const Policy &policy) {
        Zone *zone = make_zone_for(&policy, kBytes);
        uint64_t now_ms = window_at(policy, utc(2026, 3, 29, 12)).end_ms - 1000;
        Claim claim = acquire(zone, &policy, 1, 10, 6, now_ms);

        refund(claim, 2, now_ms, now_ms + 999);
        assert_int_equal(remaining_of(zone, &policy, 1, 10, now_ms + 999), 6);
        assert_true(admits(zone, &policy, 1, 10, 4, now_ms + 1000));
        refund(claim, 2, now_ms, now_ms + 1000);
        assert_int_equal(remaining_of(zone, &policy, 1, 10, now_ms + 1000), 6);
        free(zone);
    });
}

/* A worker whose clock is behind sees a window that is yet to come. */
void keeps_to_a_later_window(void **) {
    each_policy([](const Policy &policy) {
        Zone *zone = make_zone_for(&policy, kBytes);
        CalendarWindow window = window_at(policy, utc(2026, 10, 25, 12));
        CalendarWindow next = window_at(policy, window.end_ms);

        assert_true(admits(zone, &policy, 1, 10, 10, window.end_ms - 1));
        assert_true(admits(zone, &policy, 1, 10, 9, window.end_ms));
        assert_true(admits(zone, &policy, 1, 10, 1, window.end_ms - 1));
        Claim claim = acquire(zone, &policy, 1, 10, 1, window.end_ms - 1);
        assert_int_equal(claim.outcome, Outcome::kRejected);
        assert_int_equal(claim.retry_after_ms(window.end_ms - 1), next.length_ms() + 1);
        free(zone);
    });
}

/* A clock that is set back does not keep a key out for longer than the next window and a minute;
 * a window that begins sooner does not move back. */
void forgets_windows_after_the_next(void **) {
    constexpr uint64_t kNowMs = PRESENT * DAY_MS + 12345, kMinuteMs = 60000;

    for (uint64_t window_ms : {100u, 1000u, 7000u, 60000u, 3600000u, 86400000u}) {
        for (uint64_t back_ms : {50u, 1000u, 59000u, 120000u, 3600000u, 43200000u}) {
            Policy policy = evicting(window_ms);
            policy.algorithm = Algorithm::kFixed;
            policy.precision = 0;

            Zone *zone = make_zone_for(&policy, kBytes);
            uint64_t set_ms = kNowMs - back_ms, end_ms = set_ms - set_ms % window_ms + window_ms;
            uint64_t begin_ms = kNowMs - kNowMs % window_ms;
            bool is_kept = begin_ms <= end_ms || begin_ms - set_ms <= kMinuteMs;

            assert_true(admits(zone, &policy, 1, 10, 10, kNowMs));

            Claim claim = acquire(zone, &policy, 1, 10, 10, set_ms);
            assert_int_equal(claim.outcome == Outcome::kAdmitted, !is_kept);

            uint64_t retry_ms = acquire(zone, &policy, 1, 10, 1, set_ms).retry_after_ms(set_ms);
            assert_int_equal(retry_ms, (is_kept ? begin_ms + window_ms : end_ms) - set_ms);
            assert_true(admits(zone, &policy, 1, 10, 10, set_ms + retry_ms));
            free(zone);
        }
    }

    each_policy([](const Policy &policy) {
        Zone *zone = make_zone_for(&policy, kBytes);
        uint64_t set_ms = utc(2026, 3, 29, 12), next_ms = window_at(policy, set_ms).end_ms;
        uint64_t third_ms = window_at(policy, next_ms).end_ms;

        assert_true(admits(zone, &policy, 1, 10, 10, third_ms));
        assert_true(admits(zone, &policy, 1, 10, 10, set_ms));
        assert_false(admits(zone, &policy, 1, 10, 1, set_ms));
        free(zone);
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(admits_the_limit_in_each_window),
        cmocka_unit_test(knows_the_borders_of_2026),
        cmocka_unit_test(takes_back_within_the_window),
        cmocka_unit_test(keeps_to_a_later_window),
        cmocka_unit_test(forgets_windows_after_the_next),
    };

    return cmocka_run_group_tests_name("calendar_fixed", tests, nullptr, nullptr);
}
