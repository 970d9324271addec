/* Copyright (C) the limit_sliding authors */

/* Fixed windows of the calendar, by a clock of the test's own. */

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
                decide_of(policy, kLimit, Purpose::kLook)(&claim, late_ms);
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

/* What a key has used, in windows of a calendar, by the rule of docs/algorithms.md. */
struct Model {
    const Policy &policy;
    uint64_t limit;
    uint64_t since; /* number of a window */
    uint64_t level; /* used in it, of which each window takes the limit if it owes */

    uint64_t used_in(uint64_t number) const {
        if (level <= limit) { return number == since ? level : 0; }

        uint64_t gone = (number - since) * limit;
        return level > gone ? level - gone : 0;
    }

    /* Returns the ms until no more than `room` is used. */
    uint64_t wait_ms(uint64_t now_ms, uint64_t room) const {
        uint64_t number = window_at(policy, now_ms).number;

        if (used_in(number) <= room) { return 0; }

        while (used_in(number) > room) {
            number++;
        }

        return calendar_begin_ms(policy.calendar, policy.offsets, number) - now_ms;
    }

    void use(uint64_t now_ms, uint64_t used) {
        since = window_at(policy, now_ms).number;
        level = used;
    }
};

/* Requests, charges and refunds at random, over all borders. */
void owes_by_windows(void **) {
    uint64_t random = 7;

    each_policy([&](const Policy &policy) {
        for (uint32_t limit : {1u, 3u, 100u, 500000000u}) {
            Zone *zone = make_zone_for(&policy, kBytes);
            Model model = {policy, limit, 0, 0};
            uint64_t now_ms = utc(2019, 1, 1);
            uint64_t most = 0; /* windows ahead */

            for (int i = 0; i < 3000; i++) {
                now_ms += random_below(&random, 3) * policy.window_ms / (1 + i % 7);

                /* often at a border */
                if (random_below(&random, 3) == 0) {
                    now_ms = window_at(policy, now_ms).end_ms - random_below(&random, 2);
                }

                uint64_t used = model.used_in(window_at(policy, now_ms).number);
                auto cost = static_cast<uint32_t>(random_below(&random, limit + 2));
                Claim claim = claim_of(zone, &policy, 1, limit, cost);

                switch (random_below(&random, 8)) {
                case 0: {
                    uint64_t charged = cost + random_below(&random, 6) * limit;
                    assert_int_equal(charge(claim, charged, now_ms), 0);
                    if (charged != 0) { model.use(now_ms, used + charged); }
                    break;
                }
                case 1:
                    give_back(claim, cost, now_ms);
                    if (cost != 0 && used != 0) {
                        model.use(now_ms, used > cost ? used - cost : 0);
                    }
                    break;
                default:
                    limit_sliding::acquire(&claim, 1, now_ms);
                    assert_int_equal(claim.outcome, used + cost <= limit ? Outcome::kAdmitted
                                                                         : Outcome::kRejected);
                    if (claim.outcome == Outcome::kAdmitted && cost != 0) {
                        model.use(now_ms, used + cost);
                    }
                    uint64_t wait_ms = model.wait_ms(now_ms, limit - std::min(cost, limit));
                    assert_int_equal(claim.retry_after_ms(now_ms),
                                     claim.outcome == Outcome::kAdmitted ? 0
                                     : cost > limit                      ? kNever
                                                                         : wait_ms);
                }

                Verdict now = describe(acquire(zone, &policy, 1, limit, 0, now_ms), now_ms);
                used = model.used_in(window_at(policy, now_ms).number);
                uint64_t left = limit - std::min<uint64_t>(used, limit);
                assert_int_equal(now.remaining, left);
                assert_int_equal(now.reset_ms,
                                 left == limit ? 0 : model.wait_ms(now_ms, limit - left - 1));
                most = std::max(most, used / limit);
            }

            assert_true(most > 4);
            free(zone);
        }
    });
}

/* A debt is paid by so many windows as it has limits, a thousand at most. */
void owes_for_a_thousand_windows(void **) {
    each_policy([](const Policy &policy) {
        Zone *zone = make_zone_for(&policy, kBytes);
        uint64_t now_ms = utc(2026, 2, 28, 12);
        Claim claim = claim_of(zone, &policy, 1, 10, 0);
        uint64_t number = window_at(policy, now_ms).number;
        auto begin_ms
            = [&](uint64_t n) { return calendar_begin_ms(policy.calendar, policy.offsets, n); };

        assert_int_equal(charge(claim, 10 * 1000, now_ms), 0);
        assert_int_equal(charge(claim, 12, now_ms), 2);

        for (uint64_t passed : {0, 1, 11, 600, 999}) {
            uint64_t then_ms = passed == 0 ? now_ms : begin_ms(number + passed);
            Claim late = acquire(zone, &policy, 1, 10, 1, then_ms);
            assert_int_equal(late.outcome, Outcome::kRejected);
            assert_int_equal(late.retry_after_ms(then_ms), begin_ms(number + 1001) - then_ms);
        }

        assert_false(admits(zone, &policy, 1, 10, 1, begin_ms(number + 1001) - 1));
        assert_true(admits(zone, &policy, 1, 10, 10, begin_ms(number + 1001)));
        free(zone);
    });
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

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(admits_the_limit_in_each_window),
        cmocka_unit_test(knows_the_borders_of_2026),
        cmocka_unit_test(owes_by_windows),
        cmocka_unit_test(owes_for_a_thousand_windows),
        cmocka_unit_test(takes_back_within_the_window),
        cmocka_unit_test(keeps_to_a_later_window),
    };

    return cmocka_run_group_tests_name("calendar_fixed", tests, nullptr, nullptr);
}
