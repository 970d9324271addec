/* Copyright (C) the limit_sliding authors */

/*
 * Histories of events, algorithm=log and counter with a precision, that are
 * charged for what requests turned out to cost, and owe.
 */

#include "rounds.hpp"
#include "support.hpp"

#include <algorithm>
#include <optional>
#include <stdbool.h>
#include <stdio.h>

#define KEY 1
#define NOW_MS (PRESENT * MINUTE_MS)
#define ZONE_BYTES (kZoneAlign + 64 * 1024)

/* A key in a zone of its own, whose future can be tried. */
class OneKey {
public:
    explicit OneKey(const Policy &policy, size_t bytes = ZONE_BYTES)
        : policy_(policy), bytes_(bytes), zone_(make_zone_for(&policy_, bytes)),
          debts_(make_debts()) {}

    ~OneKey() {
        free(zone_);
        free(debts_);
    }

    OneKey(const OneKey &other) : OneKey(other.policy_, other.bytes_) {
        memcpy((void *)zone_, (void *)other.zone_, bytes_);
        memcpy((void *)debts_, (void *)other.debts_, DEBTS_BYTES);
    }

    Zone *zone() const { return zone_; }
    const Policy &policy() const { return policy_; }

    Claim claim(uint64_t limit, uint64_t cost = 1) const {
        Claim claim = claim_of(zone_, debts_, &policy_, KEY, (uint32_t)limit, 1);

        claim.cost = cost;

        return claim;
    }

    Claim acquire(uint64_t limit, uint64_t cost, uint64_t now_ms) const {
        Claim decided = claim(limit, cost);

        limit_sliding::acquire(&decided, 1, now_ms);

        return decided;
    }

    bool admits(uint64_t limit, uint64_t cost, uint64_t now_ms) const {
        return acquire(limit, cost, now_ms).outcome == Outcome::kAdmitted;
    }

    /* As admits(), but as if nobody had asked. */
    bool would_admit(uint64_t limit, uint64_t cost, uint64_t now_ms) const {
        return OneKey(*this).admits(limit, cost, now_ms);
    }

    uint64_t charge(uint64_t limit, uint64_t cost, uint64_t now_ms) const {
        return limit_sliding::charge(claim(limit), cost, now_ms);
    }

    void give_back(uint64_t limit, uint64_t cost, uint64_t now_ms) const {
        limit_sliding::give_back(claim(limit), cost, now_ms);
    }

    uint64_t used(uint64_t limit, uint64_t now_ms) const {
        return policy_.used(acquire(limit, 0, now_ms).describe(now_ms));
    }

private:
    Policy policy_;
    size_t bytes_;
    Zone *zone_;
    Debts *debts_;
};

static uint64_t ticks_of(const Policy &policy) {
    return policy.algorithm == Algorithm::kLog ? policy.window_ms : policy.precision;
}

/* The most windows that a key may owe. */
static uint64_t windows_of(const Policy &) { return Debts::kWindowsMax; }

struct Policies {
    Policy policies[7];

    const Policy *begin() const { return policies; }
    const Policy *end() const { return policies + LENGTH(policies); }
};

static Policies all_policies(uint64_t window_ms) {
    return {{log_of(window_ms), parts_of(window_ms, 2), parts_of(window_ms, 4),
             parts_of(window_ms, 10), parts_of(window_ms, 60), parts_of(window_ms, 4, true),
             parts_of(window_ms, 10, true)}};
}

/* ---- one debt ---- */

/* A debt is there to the unit, and paid at the pace of a limit a window. */
static void test_debt_is_paid(void **state) {
    (void)state;

    for (const Policy &policy : all_policies(MINUTE_MS)) {
        for (uint64_t owed : {1, 7, 30, 99, 100, 101, 250, 1000, 99900}) {
            OneKey key(policy);
            uint64_t windows = (owed + 99) / 100;

            assert_int_equal(key.charge(100, 60, NOW_MS), 0);
            assert_int_equal(key.used(100, NOW_MS), 60);
            assert_int_equal(key.charge(100, 40 + owed, NOW_MS), 0);
            assert_int_equal(key.used(100, NOW_MS), 100 + owed);
            assert_int_equal(remaining_of(key.zone(), &policy, KEY, 100, NOW_MS), 0);

            for (uint64_t i = 1; i <= windows + 2; i++) {
                uint64_t paid = i * 100;
                uint64_t left = 100 + owed - std::min(100 + owed, paid);
                uint64_t now_ms = NOW_MS + i * MINUTE_MS + 1;
                uint64_t seen = OneKey(key).used(100, now_ms + MINUTE_MS / ticks_of(policy));

                /* what is to come at once may come somewhat later */
                assert_in_range(seen, left, i > 1 ? left + 100 : 100 + owed);
            }

            assert_int_equal(key.used(100, NOW_MS + (windows + 3) * MINUTE_MS), 0);
        }
    }
}

/* What cannot be owed is told. */
static void test_debt_too_large(void **state) {
    static const uint64_t windows_ms[]
        = {kWindowMinMs, MINUTE_MS, 60 * MINUTE_MS, DAY_MS, 7 * DAY_MS, kWindowMaxMs};

    (void)state;

    for (uint64_t window_ms : windows_ms) {
        for (const Policy &policy : all_policies(window_ms)) {
            for (uint64_t limit : {1ull, 1000ull, (unsigned long long)LIMIT_MAX}) {
                OneKey key(policy);
                uint64_t now_ms = PRESENT * window_ms + window_ms / 3;
                uint64_t most = (windows_of(policy) + 1) * limit;
                uint64_t end_ms = now_ms + windows_of(policy) * window_ms;

                assert_int_equal(key.charge(limit, most + 5, now_ms), 5);
                assert_int_equal(key.used(limit, now_ms), most);
                assert_int_equal(key.charge(limit, 3, now_ms), 3);
                assert_int_equal(key.charge(limit, 1ull << 53, now_ms), 1ull << 53);
                assert_int_equal(key.used(limit, now_ms), most);

                /* nobody touches the key until the debt is paid */
                assert_false(key.would_admit(limit, 1, end_ms - window_ms));
                assert_int_equal(OneKey(key).used(limit, end_ms - 1), 2 * limit);
                assert_int_equal(key.used(limit, end_ms + 3 * window_ms), 0);
                assert_true(key.admits(limit, limit, end_ms + 3 * window_ms));

                /* who owes without end owes no more than that */
                for (uint64_t i = 0; i < 70; i++) {
                    now_ms += window_ms / 2 + 1;
                    key.charge(limit, limit, now_ms);
                    assert_in_range(key.used(limit, now_ms), 1, most + limit);
                }
            }
        }
    }
}

/* ---- what is given back ---- */

static void test_refund_of_debts(void **state) {
    (void)state;

    for (const Policy &policy : all_policies(MINUTE_MS)) {
        for (uint64_t owed : {5, 60, 150, 5000}) {
            OneKey key(policy);
            uint64_t now_ms = NOW_MS;
            Claim first = key.acquire(100, 50, now_ms);
            Claim second = key.acquire(100, 30, now_ms + 10);
            uint64_t used = 80 + 20 + owed;

            now_ms += 20;
            assert_int_equal(key.charge(100, 20 + owed, now_ms), 0);
            limit_sliding::refund(first, 3, NOW_MS, now_ms);
            assert_int_equal(key.used(100, now_ms), used -= 3);
            limit_sliding::refund(second, 7, NOW_MS + 10, now_ms + 5);
            assert_int_equal(key.used(100, now_ms + 5), used -= 7);
            key.give_back(100, owed, now_ms + 5);
            assert_int_equal(key.used(100, now_ms + 5), used -= owed);
            assert_int_equal(used, 90);
            assert_true(key.admits(100, 10, now_ms + 5));
            assert_false(key.admits(100, 1, now_ms + 5));

            /* now it owes no more, each has what it had left */
            limit_sliding::refund(first, 47, NOW_MS, now_ms + 6);
            assert_int_equal(key.used(100, now_ms + 6), 53);
            limit_sliding::refund(second, 23, NOW_MS + 10, now_ms + 6);
            assert_int_equal(key.used(100, now_ms + 6), 30);
            key.give_back(100, 29, now_ms + 7);
            assert_int_equal(key.used(100, now_ms + 7), 1);
            key.give_back(100, 1000, now_ms + 8);
            assert_int_equal(key.used(100, now_ms + 8), 0);
            assert_true(key.admits(100, 100, now_ms + 8));
        }
    }
}

/* The newest units are given back first, through credits where others came. */
static void test_give_back_newest_first(void **state) {
    (void)state;

    for (const Policy &policy : all_policies(MINUTE_MS)) {
        OneKey key(policy);

        for (uint64_t i = 0; i < 10; i++) {
            assert_true(key.admits(100, 10, NOW_MS + i * 5900));
        }

        uint64_t now_ms = NOW_MS + 55000;

        key.give_back(100, 0, now_ms);
        assert_int_equal(key.used(100, now_ms), 100);
        key.give_back(100, 35, now_ms);
        assert_int_equal(key.used(100, now_ms), 65);
        assert_true(key.admits(100, 35, now_ms));
        key.give_back(100, 40, now_ms + 1);
        assert_int_equal(key.used(100, now_ms + 1), 60);

        /* the oldest are left, and leave */
        assert_in_range(key.used(100, NOW_MS + MINUTE_MS + 30000), 0, 30);
        assert_int_equal(key.used(100, NOW_MS + 3 * MINUTE_MS), 0);
    }
}

/* Once the mark's events are over, only the debt is less. */
static void test_late_refund(void **state) {
    (void)state;

    for (const Policy &policy : all_policies(SECOND_MS)) {
        OneKey key(policy);
        Claim first = key.acquire(100, 50, NOW_MS);

        assert_int_equal(key.charge(100, 5000, NOW_MS), 0);

        uint64_t used = key.used(100, NOW_MS + 2000);

        limit_sliding::refund(first, 50, NOW_MS, NOW_MS + 2000);
        assert_int_equal(key.used(100, NOW_MS + 2000), used - 50);
        limit_sliding::refund(first, 50, NOW_MS, NOW_MS + 100000);
        assert_int_equal(key.used(100, NOW_MS + 100000), 0);
    }
}

/* What was admitted in the present window is given back also if the key owes by then,
 * by whatever time that its history has reached. */
static void test_refund_while_debtor(void **state) {
    (void)state;

    for (const Policy &policy : all_policies(MINUTE_MS)) {
        for (uint64_t owed : {1, 5, 20, 90}) {
            for (uint64_t later_ms : {0, 1, 2}) {
                OneKey key(policy);
                Claim first = key.acquire(20, 10, NOW_MS);

                assert_int_equal(key.charge(20, 10 + owed, NOW_MS + later_ms), 0);
                limit_sliding::refund(first, 4, NOW_MS, NOW_MS + later_ms);
                assert_int_equal(key.used(20, NOW_MS + later_ms), 16 + owed);
            }
        }
    }
}

/* ---- years ---- */

/* The told time is no later than all used units take to leave, and true to the ms. */
static void check_told(const OneKey &key, uint64_t limit, uint64_t now_ms) {
    const uint64_t windows = key.used(limit, now_ms) / limit + 2;
    const uint64_t retry_ms = key.acquire(limit, 1, now_ms).describe(now_ms).retry_after_ms;

    assert_in_range(retry_ms, 1, windows * key.policy().window_ms);
    assert_false(key.would_admit(limit, 1, now_ms + retry_ms - 1));
    assert_true(key.would_admit(limit, 1, now_ms + retry_ms));
}

/* Ticks of a log have 36 bits, which are 795 days.  A key that owes for longer, so that its
 * history never ends, is told true times. */
static void test_years_of_debt(void **state) {
    (void)state;

    for (const Policy &policy : all_policies(kWindowMaxMs)) {
        for (uint64_t limit : {1, 10, 1000}) {
            for (uint64_t step_ms : {DAY_MS, kWindowMaxMs / 3, kWindowMaxMs - 1}) {
                OneKey key(policy);

                for (uint64_t ms = 0; ms < 3 * YEAR_MS; ms += step_ms) {
                    const uint64_t now_ms = PRESENT * kWindowMaxMs + ms;

                    if (ms > 0) { assert_true(key.used(limit, now_ms) > limit); }
                    while (key.used(limit, now_ms) < 4 * limit) {
                        assert_int_equal(key.charge(limit, limit, now_ms), 0);
                    }

                    check_told(key, limit, now_ms);
                }
            }
        }
    }
}

/* So is a key that only asks while it owes, and afterwards it has all of its limit. */
static void test_years_of_looks(void **state) {
    (void)state;

    for (const Policy &policy : all_policies(kWindowMaxMs)) {
        for (uint64_t windows : {0, 40}) {
            OneKey key(policy);
            uint64_t now_ms = PRESENT * kWindowMaxMs;
            const uint64_t end_ms = now_ms + 4 * YEAR_MS;

            key.charge(10, 10 + 10 * windows, now_ms);

            for (; now_ms < end_ms; now_ms += DAY_MS) {
                if (key.used(10, now_ms) >= 10) { check_told(key, 10, now_ms); }
            }

            assert_int_equal(key.used(10, now_ms), 0);
            assert_true(key.would_admit(10, 10, now_ms));
        }
    }
}

/* ---- random histories ---- */

struct Admitted {
    Claim claim;
    uint64_t at_ms;
    uint64_t left;
};

class Walk {
public:
    Walk(uint64_t seed, const Policy &policy) : random_(seed), key_(policy), policy_(policy) {
        limit_ = random_scale(&random_, 1, LIMIT_MAX);
        usual_ = limit_;
        now_ms_ = PRESENT * policy.window_ms + random_below(&random_, policy.window_ms);
        changes_limit_ = random_below(&random_, 3) == 0;
        gives_back_ = random_below(&random_, 2) == 0;
    }

    void go() {
        for (int i = 0; i < 40; i++) {
            if (changes_limit_) {
                limit_ = random_below(&random_, 2) ? usual_ : random_scale(&random_, 1, LIMIT_MAX);
            }

            advance();
            settle();
            check_wait();
        }
    }

private:
    uint64_t used() const { return key_.used(limit_, now_ms_); }

    bool fades() const { return policy_.algorithm == Algorithm::kCounter && !policy_.strict; }

    void advance() {
        uint64_t before = used();
        uint64_t given = given_;

        switch (random_below(&random_, 4)) {
        case 0:
            return;
        case 1:
            now_ms_ += random_below(&random_, 3);
            break;
        case 2:
            now_ms_ += random_below(&random_, policy_.window_ms);
            break;
        default:
            now_ms_ += random_below(&random_, 8) != 0
                           ? random_below(&random_, policy_.window_ms / 16 + 1)
                           : random_scale(&random_, 1, 1000) * policy_.window_ms;
        }

        assert_in_range(used(), 0, before + given);
    }

    void settle() {
        uint64_t before = used();
        uint64_t units = random_scale(&random_, 1, usual_);

        switch (random_below(&random_, gives_back_ ? 5 : 3)) {
        case 0:
        case 1:
            admit(before, std::min<uint64_t>(units, limit_));
            break;
        case 2:
            if (random_below(&random_, 2)) { units *= random_scale(&random_, 1, 900); }

            charge(before, units);
            break;
        case 3:
            refund(before, units);
            break;
        default:
            give_back(before, units);
        }
    }

    void admit(uint64_t before, uint64_t cost) {
        Claim claim = key_.acquire(limit_, cost, now_ms_);

        assert_int_equal(claim.outcome == Outcome::kAdmitted, before + cost <= limit_);

        if (claim.outcome == Outcome::kAdmitted) {
            assert_int_equal(used(), before + cost);
            admitted_[admissions_++ % LENGTH(admitted_)] = {claim, now_ms_, cost};
        }
    }

    void charge(uint64_t before, uint64_t cost) {
        uint64_t lost = key_.charge(limit_, cost, now_ms_);

        assert_in_range(lost, 0, cost);
        assert_int_equal(used(), before + cost - lost);

        if (lost != 0 && windows_of(policy_) == 1000) {
            assert_true(before + cost > 999 * std::min(limit_, usual_));
        }
    }

    /* Gives back of one of the last admissions, if that is still in the window. */
    void refund(uint64_t before, uint64_t units) {
        if (admissions_ == 0) { return; }

        Admitted &one
            = admitted_[random_below(&random_, std::min<uint64_t>(LENGTH(admitted_), admissions_))];
        uint64_t given = std::min(units, one.left);
        uint64_t age_ms = now_ms_ - one.at_ms;
        bool is_recent = age_ms < policy_.window_ms - policy_.window_ms / 64 - 1;

        /* the limit in force is that of now */
        one.claim.limit = limit_;
        limit_sliding::refund(one.claim, given, one.at_ms, now_ms_);
        one.left -= given;

        /* credits of a log may be over before what they were given for; of what
         * fades, less is given back */
        bool is_exact = policy_.strict || (policy_.algorithm == Algorithm::kLog && given_ == 0);

        if (is_recent && is_exact && age_ms < 7200000) {
            assert_int_equal(used(), before - std::min(before, given));
        } else {
            assert_in_range(used(), before - std::min(before, given), before);
        }

        given_ += given;
    }

    void give_back(uint64_t before, uint64_t units) {
        key_.give_back(limit_, units, now_ms_);
        assert_in_range(used(), before - std::min(before, units), before);
        given_ += units;
    }

    /* A request that is rejected is admitted when it was told, and not before. */
    void check_wait() {
        uint64_t cost = random_scale(&random_, 1, limit_);
        OneKey asked(key_);
        Claim claim = asked.acquire(limit_, cost, now_ms_);

        if (claim.outcome == Outcome::kAdmitted) { return; }

        uint64_t wait_ms = claim.describe(now_ms_).retry_after_ms;

        assert_true(wait_ms > 0);
        assert_true(key_.would_admit(limit_, cost, now_ms_ + wait_ms));

        if (policy_.algorithm != Algorithm::kLog || given_ == 0) {
            assert_false(key_.would_admit(limit_, cost, now_ms_ + wait_ms - 1));
        }

        if (random_below(&random_, 4) == 0) { now_ms_ += wait_ms; }
    }

    uint64_t random_;
    OneKey key_;
    Policy policy_;
    uint64_t usual_;
    uint64_t limit_;
    uint64_t now_ms_;
    bool changes_limit_;
    bool gives_back_;
    uint64_t given_ = 0;
    Admitted admitted_[3];
    uint64_t admissions_ = 0;
};

/* TSan takes long, and has nothing to find in one thread. */
#ifdef __SANITIZE_THREAD__
#define SEEDS 20
#define POLICIES 1
#else
#define SEEDS draws(300)
#define POLICIES SIZE_MAX
#endif

static void test_random(void **state) {
    (void)state;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint64_t random = seed;
        uint64_t window_ms = random_window_ms(&random);

        for (const Policy &policy : all_policies(window_ms)) {
            Walk(seed, policy).go();
        }
    }
}

/* ---- in the long run ---- */

/* Who always uses what there is, and more than was reserved, gets what the limit
 * says, and what was in flight. */
static void test_long_run(void **state) {
    static const uint64_t costs[] = {2, 5, 50, 120, 700};
    const uint64_t windows = draws(40);
    const uint64_t whole = 100 * windows;

    (void)state;

    size_t left = POLICIES;

    for (const Policy &policy : all_policies(10 * SECOND_MS)) {
        if (left-- == 0) { break; }

        for (uint64_t most : costs) {
            for (uint64_t pause_ms : {1, 37, 90}) {
                OneKey key(policy);
                uint64_t random = most;
                uint64_t used = 0;
                uint64_t ends_ms = windows * 10 * SECOND_MS;

                for (uint64_t now_ms = 0; now_ms < ends_ms; now_ms += pause_ms) {
                    if (!key.admits(100, 1, NOW_MS + now_ms)) { continue; }

                    uint64_t cost = 1 + random_below(&random, most);

                    assert_int_equal(key.charge(100, cost - 1, NOW_MS + now_ms), 0);
                    used += cost;
                }

                assert_in_range(used, whole / 2, whole + 100 + whole / 4 + most);

                if (policy.algorithm == Algorithm::kLog || policy.strict) {
                    assert_in_range(used, 0, whole + 100 + most);
                }
            }
        }
    }
}

/* ---- several workers ---- */

class Game {
public:
    explicit Game(const Policy &policy) : policy_(policy) {}

    void begin(unsigned round) {
        key_.emplace(policy_);
        sum_ = 0;
        limit_ = 1000u << (round % 3 * 2);
    }

    void work(unsigned, uint64_t *random) {
        for (unsigned i = 0; i < 12; i++) {
            uint64_t now_ms = NOW_MS + i / 4;
            Claim claim = key_->acquire(limit_, 10, now_ms);
            uint64_t cost = random_below(random, 400);

            /* what could not be recorded is told */
            if (claim.outcome != Outcome::kAdmitted) {
                sum_ += cost - key_->charge(limit_, cost, now_ms);
            } else if (cost >= 200) {
                sum_ += cost - key_->charge(limit_, cost - 10, now_ms);
            } else {
                limit_sliding::refund(claim, cost % 11, now_ms, now_ms);
                sum_ += 10 - cost % 11;
            }
        }
    }

    void end() { assert_int_equal(key_->used(limit_, NOW_MS + 5), sum_.load()); }

private:
    Policy policy_;
    std::optional<OneKey> key_;
    uint64_t limit_ = 0;
    std::atomic<uint64_t> sum_{0};
};

static void test_workers(void **state) {
    (void)state;

    for (const Policy &policy : {log_of(MINUTE_MS), parts_of(MINUTE_MS, 10)}) {
        Game game(policy);

        Rounds<Game>::play(&game, 4, 3000, 4);
    }
}

/* More is given back than was used, when the zone's time has hardly begun: the search
 * for what was used ends where time begins. */
static void test_give_back_at_first(void **state) {
    (void)state;

    Policy policy = evicting(MINUTE_MS);
    policy.algorithm = Algorithm::kLog;
    OneKey key(policy);

    assert_true(key.admits(10, 2, 1));
    assert_true(key.admits(10, 1, 2));
    give_back(key.claim(10), 3, 3);
    assert_int_equal(key.used(10, 3), 0);
    give_back(key.claim(10), 1, 3);
    assert_int_equal(key.used(10, 3), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_debt_is_paid),    cmocka_unit_test(test_debt_too_large),
        cmocka_unit_test(test_refund_of_debts), cmocka_unit_test(test_give_back_newest_first),
        cmocka_unit_test(test_late_refund),     cmocka_unit_test(test_refund_while_debtor),
        cmocka_unit_test(test_years_of_debt),   cmocka_unit_test(test_years_of_looks),
        cmocka_unit_test(test_random),          cmocka_unit_test(test_long_run),
        cmocka_unit_test(test_workers),         cmocka_unit_test(test_give_back_at_first),
    };

    return cmocka_run_group_tests_name("settle_rings", tests, NULL, NULL);
}
