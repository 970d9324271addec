/* Copyright (C) the limit_sliding authors */

/*
 * Fixed windows of the calendar by the script in a real Redis and by the core: the
 * same requests are admitted, and all are told the same.  The clock is the test's.
 */

#include <stdio.h>

#include "calendars.hpp"
#include "redis/protocol/remote_state.hpp"
#include "redis_script.hpp"

namespace {

constexpr uint64_t kMonthMs = 30ull * DAY_MS;

/* One key in both. */
struct Run {
    Policy policy;
    uint64_t limit;
    unsigned script; /* of script_sha */
    bool is_own;     /* the zone's window is another one */
    Zone *zone;
    uint64_t now_ms;
    uint64_t random;

    Claim claim(uint64_t cost) const {
        return claim_of(zone, &policy, 1, static_cast<uint32_t>(limit),
                        static_cast<uint32_t>(cost));
    }

    /* Returns a reply of as many numbers as are expected; free()s the last one. */
    redisReply *ask(uint64_t cost, Purpose look, uint64_t taken_ms = 0) const {
        const bool is_local = policy.offsets != nullptr;
        char text[512];
        int n = snprintf(text, sizeof(text), "EVALSHA %s 1 k 1 %d", script_sha[script],
                         is_own ? 10 : 2);

        auto add = [&](int64_t number) {
            n += snprintf(text + n, sizeof(text) - static_cast<size_t>(n), " %lld",
                          static_cast<long long>(number));
        };

        auto code = static_cast<int>(policy.calendar);

        add(static_cast<int64_t>(is_own ? HOUR_MS : policy.window_ms));
        add(static_cast<int64_t>(limit));
        add((is_own ? 0 : code) + (is_local ? 8 : 0));
        add(static_cast<int64_t>(cost));
        add(static_cast<int>(look));

        if (look == Purpose::kGiveBack) {
            add(static_cast<int64_t>(taken_ms));
            add(0);
            add(0);
            add(is_own ? code : 0);
        }

        if (is_own) { add(code); }

        if (is_local) {
            UtcOffsets near = policy.offsets->between(static_cast<int64_t>(now_ms - kMonthMs),
                                                      static_cast<int64_t>(now_ms + kMonthMs));
            add(static_cast<int64_t>(2 * near.n));

            for (size_t i = 0; i < near.n; i++) {
                add(near.offsets[i].since_ms);
                add(near.offsets[i].offset_ms);
            }
        }

        add(static_cast<int64_t>(now_ms));

        static redisReply *reply;
        freeReplyObject(reply);
        reply = static_cast<redisReply *>(redisCommand(server.context, text));
        assert_non_null(reply);
        if (reply->type != REDIS_REPLY_ARRAY) { fail_msg("%s: %s", text, reply->str); }
        assert_int_equal(reply->element[0]->integer, now_ms);
        return reply;
    }

    /* Decides a request in both, and returns the core's claim. */
    Claim decide(uint64_t cost, Purpose purpose) {
        redisReply *reply = ask(cost, purpose);
        Claim ours = claim(cost);
        ours.purpose = purpose;
        limit_sliding::acquire(&ours, 1, now_ms);

        bool admitted = ours.outcome == Outcome::kAdmitted;
        assert_int_equal(reply->element[1]->integer, admitted);

        int64_t numbers[4];
        for (size_t i = 3; i < reply->elements; i++) {
            numbers[i - 3] = reply->element[i]->integer;
        }

        RemoteState remote = {now_ms, limit, numbers};
        assert_int_equal(reply->elements, 3 + remote_values(policy, numbers[0]));
        assert_true(are_remote_values(policy, limit, now_ms, numbers));
        assert_int_equal(remote.part_ends_ms(policy),
                         calendar_window(policy.calendar, policy.offsets, now_ms).end_ms);

        Verdict told = remote.describe(policy, cost, 0, admitted, purpose == Purpose::kLook);
        Verdict known = ours.describe(now_ms);
        assert_int_equal(told.limit, known.limit);
        assert_int_equal(told.remaining, known.remaining);
        assert_int_equal(told.excess, known.excess);
        assert_int_equal(told.reset_ms, known.reset_ms);
        assert_int_equal(told.retry_after_ms, known.retry_after_ms);
        return ours;
    }

    void settle(uint64_t cost, Purpose purpose, uint64_t taken_ms) const {
        redisReply *reply = ask(cost, purpose, taken_ms);
        assert_int_equal(reply->elements, 4);
        assert_int_equal(reply->element[1]->integer, 1);
        assert_int_equal(reply->element[3]->integer, 0);
    }

    bool admits(uint64_t cost) const { return ask(cost, Purpose::kLook)->element[1]->integer == 1; }

    uint64_t end_ms() const {
        return calendar_window(policy.calendar, policy.offsets, now_ms).end_ms;
    }

    /* To about the next time when the offset changes. */
    void advance_to_change() {
        for (size_t i = 1; policy.offsets != nullptr && i < policy.offsets->n; i++) {
            auto change_ms = static_cast<uint64_t>(policy.offsets->offsets[i].since_ms);

            if (change_ms > now_ms) {
                now_ms = change_ms + random_below(&random, 2 * HOUR_MS);
                return;
            }
        }
    }

    /* To any time within the next windows, and often to a border. */
    void advance() {
        now_ms += random_below(&random, 5) * policy.window_ms / (1 + random_below(&random, 20));
        if (random_below(&random, 3) == 0) { now_ms = end_ms() - random_below(&random, 2); }
        if (random_below(&random, 4) == 0) { advance_to_change(); }
    }
};

void run(Run *run) {
    Claim taken = {};
    uint64_t taken_ms = 0;

    forget_all();
    run->zone = make_zone_for(&run->policy, 32768);

    for (unsigned i = 0; i < draws(250); i++) {
        if (random_below(&run->random, 2) == 0) { run->advance(); }

        uint64_t cost = random_below(&run->random, run->limit + 2);
        bool is_look = random_below(&run->random, 6) == 0;
        Claim ours = run->decide(cost, is_look ? Purpose::kLook : Purpose::kConsume);

        if (ours.outcome == Outcome::kAdmitted && !is_look && cost > 0
            && (taken.cost == 0 || random_below(&run->random, 3) == 0)) {
            taken = ours;
            taken_ms = run->now_ms;
        }

        /* within two hours, as the core does */
        if (run->script != 0 && taken.cost != 0 && random_below(&run->random, 4) == 0) {
            if (random_below(&run->random, 3) == 0) {
                run->now_ms = std::min(run->end_ms(), uint64_t{run->now_ms + HOUR_MS});
            }

            if (run->now_ms < taken_ms + 2 * HOUR_MS) {
                uint64_t given = 1 + random_below(&run->random, taken.cost);
                run->settle(given, Purpose::kGiveBack, taken_ms);
                refund(taken, given, taken_ms, run->now_ms);
                taken.cost = 0;
            }
        }
    }

    run->decide(0, Purpose::kLook);
    free(run->zone);
}

void decides_as_the_core(void **) {
    static const char *const zones[] = {
        "",
        BERLIN,
        "<+1245>-12:45<+1345>,M9.5.0/2:45,M4.1.0/3:45", /* Chatham Islands */
        "<-04>4<-03>,M9.1.6/24,M4.1.6/24",              /* Santiago: at midnight */
        "NST3:30NDT,M3.2.0/0:01,M11.1.0/0:01",          /* back over midnight */
    };
    uint64_t seed = 1;

    for (const char *name : zones) {
        zoned_t zoned(name, 2000, 2060);

        for (Calendar calendar : calendars) {
            for (unsigned script = 0; script < 3; script++) {
                for (uint64_t limit : {1, 10, 300000000}) {
                    Policy policy = evicting(Window::of(calendar).ms);
                    policy.algorithm = Algorithm::kFixed;
                    policy.precision = 0;
                    policy.calendar = calendar;
                    policy.offsets = *name != '\0' ? &zoned.found : nullptr;

                    /* the last years are beyond the offsets, but for those of a year */
                    Run one
                        = {policy, limit, script, seed % 4 == 0, nullptr, utc(2020, 2, 28), seed++};
                    run(&one);
                }
            }
        }
    }
}

/* A history is kept to the end of its window, however long that is. */
void lasts_for_the_longest_windows(void **) {
    static zoned_t berlin(BERLIN, 2000, 2040);

    for (Calendar calendar : calendars) {
        for (const UtcOffsets *offsets : {static_cast<const UtcOffsets *>(nullptr),
                                          static_cast<const UtcOffsets *>(&berlin.found)}) {
            Policy policy = evicting(Window::of(calendar).ms);
            policy.algorithm = Algorithm::kFixed;
            policy.precision = 0;
            policy.calendar = calendar;
            policy.offsets = offsets;
            Run one = {policy, 2, 2, false, make_zone_for(&policy, 32768), utc(2026, 12, 31), 1};
            forget_all();
            one.now_ms = one.end_ms();

            for (unsigned i = 0; i < draws(800); i++) {
                uint64_t end_ms = one.end_ms();
                one.decide(1, Purpose::kConsume);
                one.decide(1, Purpose::kConsume);
                one.now_ms = end_ms - 1;
                assert_int_equal(one.decide(1, Purpose::kConsume).outcome, Outcome::kRejected);
                one.now_ms = end_ms;
                if (calendar == Calendar::kYear && i == 9) { break; }
            }

            free(one.zone);
        }
    }
}

/* So is a debt: each window after the full one pays the limit, however long it is. */
void pays_by_windows_of_the_calendar(void **) {
    static zoned_t berlin(BERLIN, 2000, 2040);

    for (Calendar calendar : calendars) {
        Policy policy = evicting(Window::of(calendar).ms);
        policy.algorithm = Algorithm::kFixed;
        policy.precision = 0;
        policy.calendar = calendar;
        policy.offsets = &berlin.found;
        Run one = {policy, 10, 2, false, nullptr, utc(2026, 2, 1), 1};
        const uint64_t first = calendar_number(calendar, policy.offsets, one.now_ms);

        /* 10 now, and 891 in the windows after the next one */
        forget_all();
        one.settle(901, Purpose::kCharge, 0);

        for (uint64_t paid = 0; paid < 89; paid += 11) {
            const uint64_t number = first + 1 + paid;
            one.now_ms = calendar_begin_ms(calendar, policy.offsets, number + 1) - 1;
            assert_false(one.admits(1));

            const redisReply *reply = one.ask(0, Purpose::kLook);
            int64_t used[] = {reply->element[5]->integer};
            RemoteState remote = {one.now_ms, 10, used};
            remote.debt = {891 - 10 * paid, number * kDebtParts, 10};
            assert_int_equal(reply->element[3]->integer, remote.debt.units);
            assert_int_equal(reply->element[4]->integer, remote.debt.from);

            const Verdict v = remote.describe(policy, 1, 0, false, true);
            assert_int_equal(v.retry_after_ms + one.now_ms,
                             calendar_begin_ms(calendar, policy.offsets, first + 1 + 90 - 1));
        }

        one.now_ms = calendar_begin_ms(calendar, policy.offsets, first + 90) - 1;
        assert_false(one.admits(1));
        one.now_ms++;
        assert_true(one.admits(9));
        assert_false(one.admits(10));
    }
}

/* Zones with another calendar, with local time, or without a calendar count apart, and find their
 * counts again. */
void count_apart(void **) {
    static zoned_t berlin(BERLIN, 2000, 2040);
    forget_all();
    for (int64_t granted : {1, 0}) {
        for (Calendar calendar : calendars) {
            Policy policy = evicting(Window::of(calendar).ms);
            policy.algorithm = Algorithm::kFixed;
            for (unsigned kind = 0; kind < 3; kind++) {
                policy.calendar = kind == 0 ? Calendar::kNone : calendar;
                policy.offsets = kind == 2 ? &berlin.found : nullptr;
                const Run one = {policy, 10, 0, false, nullptr, utc(2026, 6, 1), 1};
                assert_int_equal(one.ask(10, Purpose::kConsume)->element[1]->integer, granted);
            }
        }
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(decides_as_the_core),
        cmocka_unit_test(lasts_for_the_longest_windows),
        cmocka_unit_test(pays_by_windows_of_the_calendar),
        cmocka_unit_test(count_apart),
    };

    return cmocka_run_group_tests_name("redis calendar", tests, start, stop);
}
