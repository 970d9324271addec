/* Copyright (C) the limit_sliding authors */

/*
 * PartCounter against a plain model of the same semantics, against a log of
 * what it has admitted, and against the counter of one part.
 */

#include "core/bit_string.hpp"
#include "core/counter.hpp"
#include "core/divisor.hpp"
#include "core/part_counter.hpp"
#include "part_model.hpp"
#include "support.hpp"

#define HISTORIES 4000
#define REQUESTS 250
#define LARGEST 1000000000u

/* ---- the log ---- */

struct event_t {
    uint64_t at_ms;
    uint64_t cost;
};

struct log_t {
    size_t n;
    event_t event[REQUESTS + 1];
};

/* In the last so many ms. */
static uint64_t log_sum(const log_t *log, uint64_t now_ms, uint64_t last_ms)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < log->n; i++) {
        if (log->event[i].at_ms + last_ms > now_ms) {
            sum += log->event[i].cost;
        }
    }

    return sum;
}

static void log_add(log_t *log, const request_t *r)
{
    log->event[log->n++] = {r->now_ms, r->cost};
}

/* ---- histories ---- */

/* A key's state, and when it was last written. */
struct place_t {
    uint64_t word;
    uint64_t at_ms;
};

/* A zone has no state for longer than two epochs. */
static void forget_old(place_t *place, const request_t *r)
{
    if (r->now_ms > place->at_ms + 128 * r->policy.window_ms) {
        place->word = 0;
    }
}

static void write(place_t *place, const request_t *r, uint64_t word)
{
    *place = {word, r->now_ms};
}

static PartCounter<> counter_of(const request_t *r)
{
    return PartCounter<>(r->policy, r->now_ms, r->limit);
}

static uint32_t random_limit(uint64_t *random)
{
    uint64_t most = 1ull << (1 + random_below(random, 30));

    return static_cast<uint32_t>(
        random_below(random, most < LARGEST ? most : LARGEST) + 1);
}

/* Limits of a history, few so that states meet each of them. */
struct limits_t {
    size_t n;
    uint32_t limit[3];
};

static limits_t random_limits(uint64_t *random, size_t most)
{
    limits_t limits = {1 + random_below(random, most), {}};

    for (size_t i = 0; i < limits.n; i++) {
        limits.limit[i] = random_limit(random);
    }

    return limits;
}

static void next_request(request_t *r, uint64_t *random, const limits_t *limits)
{
    uint64_t w = r->policy.window_ms;
    uint64_t scale = random_below(random, 8);

    r->limit = limits->limit[random_below(random, limits->n)];
    r->cost = 1;

    if (random_below(random, 2) == 0) {
        r->cost = static_cast<uint32_t>(random_below(
            random, r->limit / (1 + random_below(random, 20)) + 2));
    }

    if (scale > 2) {
        r->now_ms += random_below(random, (w >> (2 * scale - 3)) + 2);
    } else if (scale == 2) {
        /* a border of parts, or a millisecond beside it */
        uint64_t n = forms[model_form(r)].parts;

        r->now_ms = ((r->now_ms * n / w + 1) * w + n - 1) / n
                    - random_below(random, 2);
    } else if (scale == 1 && random_below(random, 20) == 0) {
        r->now_ms += random_below(random, 130 * w);
    }
}

static request_t first_request(uint64_t *random)
{
    request_t r = {};

    r.policy = evicting(random_window_ms(random));
    r.policy.strict = random_below(random, 4) == 0;
    r.policy.precision = random_below(random, 4) == 0;
    r.policy.window_inverse
        = random_below(random, 2) ? Divisor::inverse_of(r.policy.window_ms) : 0;
    r.now_ms = random_below(random, 2000000000000) + 3 * r.policy.window_ms;

    return r;
}

static void check_describes(const request_t *r, const model_t *model,
                            uint64_t state)
{
    model_t m = model_at(model, r);
    uint64_t w = r->policy.window_ms;
    uint64_t used = model_used(&m, r);
    uint64_t whole = used / w + (used % w != 0);
    uint64_t over = used + r->cost * w > r->limit * w
                        ? used + r->cost * w - r->limit * w
                        : 0;
    Verdict v;

    counter_of(r).describe(state, r->cost, &v);

    assert_int_equal(v.limit, r->limit);
    assert_int_equal(v.remaining, whole < r->limit ? r->limit - whole : 0);
    assert_int_equal(v.excess, over / w * 1000 + (over % w * 1000 + w - 1) / w);
}

/* What handles most states agrees with what handles all, or leaves it alone. */
template <CounterKind kKind>
static void check_plain(const request_t *r, uint64_t state, bool admitted,
                        uint64_t expected)
{
    PartCounter<kKind> counter(r->policy, r->now_ms, r->limit);
    uint64_t next = expected;

    if (counter.is_plain(state, r->cost)) {
        assert_int_equal(counter.template admit<true>(state, r->cost, &next),
                         admitted);
        assert_int_equal(next, expected);
    }
}

static bool decide(const request_t *r, uint64_t state, uint64_t *next)
{
    bool admitted = counter_of(r).admit(state, r->cost, next);

    check_plain<CounterKind::kAny>(r, state, admitted, *next);

    switch (PartCounter<>::kind_of(r->policy, r->limit)) {
    case CounterKind::kString:
        check_plain<CounterKind::kString>(r, state, admitted, *next);
        break;
    case CounterKind::kFlat:
        check_plain<CounterKind::kFlat>(r, state, admitted, *next);
        break;
    default:
        check_plain<CounterKind::kWhole>(r, state, admitted, *next);
        break;
    }

    return admitted;
}

static bool admits_at(const request_t *r, uint64_t state, uint64_t now_ms)
{
    uint64_t next;

    return PartCounter<>(r->policy, now_ms, r->limit)
        .admit(state, r->cost, &next);
}

static uint32_t remains_at(const request_t *r, uint64_t state, uint64_t now_ms)
{
    Verdict v;

    PartCounter<>(r->policy, now_ms, r->limit).describe(state, r->cost, &v);

    return v.remaining;
}

static void check_waits(const request_t *r, uint64_t state)
{
    Verdict v;

    counter_of(r).describe(state, r->cost, &v);

    if (r->cost > r->limit) {
        assert_true(v.retry_after_ms == kNever);
    } else if (v.retry_after_ms > 0) {
        assert_true(admits_at(r, state, r->now_ms + v.retry_after_ms));
        assert_false(admits_at(r, state, r->now_ms + v.retry_after_ms - 1));
    } else {
        assert_true(admits_at(r, state, r->now_ms));
    }

    if (v.reset_ms > 0) {
        assert_true(remains_at(r, state, r->now_ms + v.reset_ms) > v.remaining);
        assert_true(remains_at(r, state, r->now_ms + v.reset_ms - 1)
                    <= v.remaining);
    } else {
        assert_int_equal(v.remaining, r->limit);
    }
}

static void test_model(void **state)
{
    uint64_t random = 1;

    (void)state;

    for (unsigned h = 0; h < HISTORIES; h++) {
        limits_t limits = random_limits(&random, 3);
        request_t r = first_request(&random);
        model_t model = {};
        place_t place = {};

        for (unsigned i = 0; i < REQUESTS; i++) {
            uint64_t ms = r.policy.window_ms / 50 + 1;
            uint64_t next = 0;

            next_request(&r, &random, &limits);

            if (random_below(&random, 10) == 0) {
                r.now_ms -= random_below(&random, ms < 500 ? ms : 500);
            }

            forget_old(&place, &r);
            check_describes(&r, &model, place.word);

            bool admitted = model_admit(&model, &r);

            if (admitted != decide(&r, place.word, &next)) {
                fail_msg("history %u request %u: the model %s it", h, i,
                         admitted ? "admits" : "rejects");
            }

            if (!admitted) {
                check_waits(&r, place.word);
            } else if (r.cost > 0) {
                write(&place, &r, next);
            }

            assert_int_equal(place.word >> 62, 0);
            check_describes(&r, &model, place.word);
        }
    }
}

static void check_bound(const request_t *r, const model_t *m, const log_t *log)
{
    const form_t *form = &forms[m->form];
    uint64_t w = r->policy.window_ms;
    uint64_t in_window = log_sum(log, r->now_ms, w);

    if (form->whole || r->policy.strict) {
        assert_true(in_window <= r->limit);
    } else if (form->parts > 1) {
        assert_true(in_window <= r->limit + r->limit / form->parts);
    }

    assert_true(log_sum(log, r->now_ms, w * (form->parts - 1) / form->parts)
                <= r->limit);
}

/*
 * Whatever limits and costs there are, and whatever is given back, no more is
 * admitted than the state's format may; and nobody waits for what nobody sent.
 */
static void test_log(void **state)
{
    uint64_t random = 2;
    uint64_t refunds = 0;

    (void)state;

    for (unsigned h = 0; h < HISTORIES; h++) {
        limits_t limits = random_limits(&random, 3);
        request_t r = first_request(&random);
        model_t model = {};
        log_t log = {};
        place_t place = {};
        bool is_known = true; /* does the model have the same counts? */

        for (unsigned i = 0; i < REQUESTS; i++) {
            next_request(&r, &random, &limits);
            forget_old(&place, &r);

            uint64_t n = forms[model_form(&r)].parts;
            uint64_t next = 0;
            model_t m = model_at(&model, &r);

            if (decide(&r, place.word, &next)) {
                log_add(&log, &r);
                write(&place, &r, next);

                if (is_known) {
                    check_bound(&r, &m, &log);
                    model_admit(&model, &r);
                } else if (r.policy.strict) {
                    assert_true(log_sum(&log, r.now_ms, r.policy.window_ms)
                                <= r.limit);
                }

                if (r.cost > 0 && random_below(&random, 20) == 0) {
                    /* others come in between */
                    uint64_t recorded = next;
                    event_t own = log.event[--log.n];

                    r.now_ms += random_below(&random, r.policy.window_ms);
                    next_request(&r, &random, &limits);
                    forget_old(&place, &r);

                    if (decide(&r, place.word, &next)) {
                        log_add(&log, &r);
                        write(&place, &r, next);
                    }

                    place.word = counter_of(&r).refund(
                        place.word, recorded, static_cast<uint32_t>(own.cost));
                    is_known = false;
                    refunds++;
                }
            } else if (limits.n == 1 && is_known && r.cost <= r.limit) {
                uint64_t sent = log_sum(&log, r.now_ms,
                                        r.policy.window_ms * (n + 1) / n + 1);

                assert_true(sent + r.cost + r.limit / 1000 >= r.limit
                            && (sent + r.cost > r.limit || r.limit > 4194303));
            }
        }
    }

    assert_in_range(refunds, 1000, UINT32_MAX);
}

/* What is rounded is at most a thousandth of what was admitted. */
static void test_large(void **state)
{
    Policy policy = evicting(kWindowMaxMs);
    uint64_t now_ms = 700ull * kWindowMaxMs;
    uint64_t random = 3;

    (void)state;

    for (unsigned i = 0; i < 100000; i++) {
        auto count = static_cast<uint32_t>(
            4194303 + random_below(&random, LARGEST - 4194302));
        uint64_t word = 0;
        Verdict v;

        assert_true(
            PartCounter<>(policy, now_ms, LARGEST).admit(0, count - 1, &word));
        assert_true(
            PartCounter<>(policy, now_ms, LARGEST).admit(word, 1, &word));

        PartCounter<>(policy, now_ms, LARGEST).describe(word, 1, &v);
        assert_int_equal(v.remaining, LARGEST - count);

        PartCounter<>(policy, now_ms + kWindowMaxMs, LARGEST)
            .describe(word, 1, &v);
        assert_true(v.remaining <= LARGEST - count);
        assert_true(v.remaining + count / 1000 >= LARGEST - count
                    || v.remaining == 0);
    }
}

/* With one part it is what it always was, up to the largest limit of that. */
static void test_one_part(void **state)
{
    uint64_t random = 4;

    (void)state;

    for (unsigned h = 0; h < HISTORIES; h++) {
        request_t r = first_request(&random);
        limits_t limits = random_limits(&random, 3);
        uint64_t word = 0;
        uint64_t old = 0;
        uint64_t written_ms = 0;

        r.policy.strict = false;
        r.policy.precision = 1;

        for (size_t i = 0; i < limits.n; i++) {
            limits.limit[i] = limits.limit[i] % 4194302 + 1;
        }

        for (unsigned i = 0; i < REQUESTS; i++) {
            Verdict v;
            Verdict expected;

            next_request(&r, &random, &limits);

            if (random_below(&random, 10) == 0) {
                r.now_ms -= random_below(&random, 50);
            }

            if (r.now_ms > written_ms + 128 * r.policy.window_ms) {
                word = 0;
                old = 0;
            }

            Counter counter(r.policy, r.now_ms, r.limit);
            PartCounter<> parts = counter_of(&r);

            counter.describe(old, r.cost, &expected);
            parts.describe(word, r.cost, &v);

            assert_int_equal(v.remaining, expected.remaining);
            assert_int_equal(v.excess, expected.excess);
            assert_int_equal(v.reset_ms, expected.reset_ms);
            assert_int_equal(v.retry_after_ms, expected.retry_after_ms);
            assert_int_equal(parts.expires_ms(word), counter.expires_ms(old));
            assert_int_equal(parts.rank(word), counter.rank(old));

            bool admitted = counter.admit(old, r.cost, &old);

            assert_int_equal(parts.admit(word, r.cost, &word), admitted);
            written_ms = admitted && r.cost > 0 ? r.now_ms : written_ms;
        }
    }
}

/* What exceeds the limit, and even the format, is waited for. */
static void test_charge(void **state)
{
    uint64_t random = 5;

    (void)state;

    for (unsigned h = 0; h < HISTORIES; h++) {
        request_t r = first_request(&random);
        uint32_t cost = random_limit(&random);
        uint64_t word = 0;
        Verdict v;

        r.limit = random_limit(&random);
        r.cost = 1;

        if (!counter_of(&r).admit(0, 1, &word)) {
            fail_msg("the first request");
        }

        word = counter_of(&r).charge(word, cost);
        counter_of(&r).describe(word, 1, &v);

        uint64_t left = r.limit > cost + 1ull ? r.limit - cost - 1ull : 0;

        assert_int_equal(v.remaining, left);
        assert_int_equal(v.excess,
                         left > 0 ? 0 : (cost + 2ull - r.limit) * 1000);
        check_waits(&r, word);

        /* all of it can be given back */
        uint64_t back = counter_of(&r).refund(word, word, cost);

        counter_of(&r).describe(back, 1, &v);
        assert_int_equal(v.remaining, r.limit - 1);
    }
}

static void test_charge_beyond_all(void **state)
{
    Policy policy = evicting(MINUTE_MS);
    PartCounter<> counter(policy, 100 * MINUTE_MS, 10);
    uint64_t word = counter.charge(0, UINT32_MAX);

    (void)state;

    assert_int_equal(word, counter.charge(word, UINT32_MAX));
    assert_int_equal(word, counter.charge(word, 1));
    assert_int_equal(counter.used(word), ((1ull << 30) - 1) * MINUTE_MS);
}

/* Up to two epochs, and the window that it counts after. */
static void test_old_states_are_none(void **state)
{
    uint64_t random = 6;

    (void)state;

    for (unsigned h = 0; h < HISTORIES; h++) {
        request_t r = first_request(&random);
        uint64_t w = r.policy.window_ms;
        uint64_t word = 0;

        r.limit = random_limit(&random);
        counter_of(&r).admit(0, r.limit, &word);

        for (unsigned i = 2; i <= 129; i++) {
            PartCounter<> later(r.policy, r.now_ms + i * w, r.limit);

            assert_int_equal(later.rank(word), 0);
            assert_int_equal(later.expires_ms(word), 0);
        }

        assert_in_range(PartCounter<>(r.policy, r.now_ms + 64 * w, 1).epoch()
                            - counter_of(&r).epoch(),
                        1, 2);
    }
}

static void test_divisor(void **state)
{
    uint64_t random = 7;

    (void)state;

    for (unsigned i = 0; i < 1000000; i++) {
        uint64_t divisor
            = (random_next(&random) >> random_below(&random, 64)) | 1;
        uint64_t n = random_next(&random) >> random_below(&random, 64);

        if (random_below(&random, 2) == 0) {
            n = n / divisor * divisor - random_below(&random, 2);
        }

        Quotient q = Divisor(divisor).divide(n);

        assert_true(q.whole == n / divisor && q.rest == n % divisor);
    }
}

static void test_bit_string(void **state)
{
    uint64_t random = 8;

    (void)state;

    for (unsigned i = 0; i < 100000; i++) {
        uint64_t x = random_next(&random);
        unsigned before = 0;

        x = random_below(&random, 2) ? x & random_next(&random)
                                     : x | random_next(&random);

        for (unsigned bit = 0; bit < 64; bit++) {
            if (x >> bit & 1) {
                assert_int_equal(bit_string::position(x, before), bit);
                before++;
            }
        }

        assert_int_equal(bit_string::count(x), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divisor),
        cmocka_unit_test(test_bit_string),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_one_part),
        cmocka_unit_test(test_charge),
        cmocka_unit_test(test_charge_beyond_all),
        cmocka_unit_test(test_old_states_are_none),
    };

    return cmocka_run_group_tests_name("part_counter", tests, NULL, NULL);
}
