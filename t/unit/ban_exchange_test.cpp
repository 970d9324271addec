/* Copyright (C) the limit_sliding authors */

/* Nodes that tell each other of bans, by the script in a real Redis. */

#include "redis/protocol/scripts.hpp"
#include "redis/shared/ban_exchange.hpp"
#include "redis_server.hpp"
#include "support.hpp"

#include <stdio.h>
#include <stdlib.h>

#define NOW_MS 1790000000000ull
#define BANS_BYTES (64 + 64 * 4096)
#define BYTES 65536

static redis_server_t server;
static char sha[41];

/* The time by Redis.  Clocks of nodes have other beginnings. */
static uint64_t now_ms;

static const PenaltyRule rule = {10 * MINUTE_MS, DAY_MS, MINUTE_MS, 1};

struct node_t {
    Bans *bans;
    BanExchange *exchange;
    uint64_t behind_ms;
    BanCall call;
    size_t told; /* numbers of bans in the last reply */
};

static void *aligned_zeroed(size_t bytes) {
    void *memory = aligned_alloc(64, bytes);

    assert_non_null(memory);

    return memset(memory, 0, bytes);
}

static node_t make_node(uint64_t clock_ms, size_t bytes = BYTES) {
    node_t node = {};

    node.bans = Bans::init(aligned_zeroed(BANS_BYTES), BANS_BYTES, test_secret);
    node.exchange = BanExchange::init(aligned_zeroed(bytes), bytes);
    node.behind_ms = now_ms - clock_ms;

    return node;
}

static void free_node(node_t *node) {
    free(node->bans);
    free(node->exchange);
}

static uint64_t clock_of(const node_t &node) { return now_ms - node.behind_ms; }

static void ban(node_t *node, uint64_t key) {
    assert_true(node->bans->reject(key, rule, clock_of(*node)).left_ms != 0);
    assert_true(node->exchange->tell(key));
}

static void lift(node_t *node, uint64_t key) {
    assert_true(node->bans->lift(key, clock_of(*node)));
    assert_true(node->exchange->tell_lifted(key, clock_of(*node)));
}

static redisReply *command(const char *text) {
    auto *reply = static_cast<redisReply *>(redisCommand(server.context, text));

    assert_non_null(reply);

    return reply;
}

static long long number(const char *text) {
    redisReply *reply = command(text);
    long long n = reply->integer;

    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    freeReplyObject(reply);

    return n;
}

/* Calls the script as a node would: a reply that is lost goes nowhere. */
static BanReply sync(node_t *node, bool is_lost = false) {
    static char text[9 + 3 * kBansPerCall][24];
    const char *args[LENGTH(text)];
    static int64_t numbers[4096];
    int n = 0;
    auto add = [&](const char *format, auto value) {
        snprintf(text[n], sizeof(text[n]), format, value);
        args[n] = text[n];
        n++;
    };

    node->exchange->fill(&node->call, *node->bans, rule, clock_of(*node));

    args[n++] = "EVALSHA";
    args[n++] = sha;
    add("%d", 2);
    args[n++] = "news";
    args[n++] = "ends";
    add("%llu", static_cast<unsigned long long>(node->call.since));
    add("%llu", static_cast<unsigned long long>(node->call.after));
    add("%llu", static_cast<unsigned long long>(node->call.until_ms));

    for (size_t i = 0; i < node->call.n; i++) {
        const ToldBan &told = node->call.bans[i];

        add("%016llx", static_cast<unsigned long long>(told.hash));
        add("%llu", static_cast<unsigned long long>(told.left_ms));
        add("%u", told.is_lifted ? kScriptLifted : told.doublings);
    }

    add("%llu", static_cast<unsigned long long>(now_ms));

    auto *reply = static_cast<redisReply *>(redisCommandArgv(server.context, n, args, NULL));
    assert_non_null(reply);

    if (reply->type != REDIS_REPLY_ARRAY) { fail_msg("%s", reply->str); }

    assert_true(reply->elements <= LENGTH(numbers));

    for (size_t i = 0; i < reply->elements; i++) {
        numbers[i] = reply->element[i]->integer;
    }

    node->told = reply->elements - 5;
    BanReply result = is_lost ? BanReply::kDone
                              : node->exchange->read(node->call, numbers, reply->elements,
                                                     node->bans, rule, clock_of(*node));
    freeReplyObject(reply);
    assert_true(result != BanReply::kInvalid);

    return result;
}

/* Returns the calls until there is no more to tell. */
static unsigned sync_all(node_t *node) {
    unsigned calls = 1;

    while (sync(node) == BanReply::kMore) {
        calls++;
    }

    return calls;
}

static uint64_t left_ms(const node_t &node, uint64_t key) {
    return node.bans->find(key, clock_of(node)).left_ms;
}

static int forget_all(void **state) {
    (void)state;
    now_ms = NOW_MS;
    freeReplyObject(command("FLUSHALL"));
    return 0;
}

static int start(void **state) {
    (void)state;
    assert_true(redis_server_start(&server));
    assert_true(redis_server_load_text(&server, bans_script(), sha));
    return 0;
}

static int stop(void **state) {
    (void)state;
    redis_server_stop(&server);
    return 0;
}

static void holds_on_the_other_node(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);

    (void)state;

    /* also a hash whose halves have their highest bits */
    const uint64_t keys[] = {1, UINT64_MAX, uint64_t{1} << 63 | 1, uint64_t{1} << 31};
    for (uint64_t key : keys) {
        ban(&a, key);
    }

    /* the first call of a node learns Redis's clock */
    assert_int_equal(sync_all(&a), 2);
    now_ms += 400;
    assert_int_equal(sync_all(&b), 2);

    for (uint64_t key : keys) {
        assert_int_equal(left_ms(b, key), 10 * MINUTE_MS - 400);
        assert_int_equal(left_ms(a, key), 10 * MINUTE_MS - 400);
    }

    assert_int_equal(left_ms(b, 2), 0);

    /* who told of them is told of them once, as the other is */
    for (unsigned i = 0; i < 3; i++) {
        now_ms += 400;
        assert_int_equal(sync(&a), BanReply::kDone);
        assert_int_equal(a.told, 0);
        assert_int_equal(sync(&b), BanReply::kDone);
        assert_int_equal(b.told, 0);
    }

    assert_int_equal(left_ms(a, 1), 10 * MINUTE_MS - 1600);
    assert_int_equal(left_ms(b, 1), 10 * MINUTE_MS - 1600);

    free_node(&a);
    free_node(&b);
}

/* The next ban is twice as long, whichever node bans. */
static void doubles_on_the_other_node(void **state) {
    node_t nodes[] = {make_node(5000), make_node(777777777)};

    (void)state;

    for (unsigned i = 0; i < 5; i++) {
        node_t *one = &nodes[i % 2];
        node_t *other = &nodes[1 - i % 2];

        ban(one, 1);
        (void)sync_all(one);
        (void)sync_all(other);
        assert_int_equal(left_ms(*other, 1), (10 * MINUTE_MS) << i);
        assert_int_equal(left_ms(*one, 1), (10 * MINUTE_MS) << i);
        now_ms += ((10 * MINUTE_MS) << i) + 1;
        assert_int_equal(left_ms(*other, 1), 0);
    }

    free_node(&nodes[0]);
    free_node(&nodes[1]);
}

/* Both nodes ban a key, one of them later. */
static void the_later_end_wins(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);

    (void)state;

    ban(&a, 1);
    now_ms += 5000;
    ban(&b, 1);
    (void)sync_all(&b);
    (void)sync_all(&a);
    (void)sync_all(&b);
    assert_int_equal(left_ms(a, 1), 10 * MINUTE_MS);
    assert_int_equal(left_ms(b, 1), 10 * MINUTE_MS);

    /* what is not later is no news */
    assert_true(a.exchange->tell(1));
    (void)sync_all(&a);
    assert_int_equal(sync(&b), BanReply::kDone);
    assert_int_equal(b.told, 0);

    free_node(&a);
    free_node(&b);
}

/* So do more doublings, in either order, beside an end that is no news. */
static void more_doublings_win(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);

    (void)state;

    for (unsigned i = 0; i < 2; i++) {
        node_t *few = i == 0 ? &a : &b;
        node_t *many = i == 0 ? &b : &a;
        const uint64_t key = 1 + i;

        assert_true(a.bans->set(key, {MINUTE_MS, i == 0 ? 1u : 3u}, rule, clock_of(a)));
        assert_true(a.exchange->tell(key));
        (void)sync_all(&a);
        now_ms += 5000;
        assert_true(
            b.bans->set(key, {MINUTE_MS - 5000 + 10000 * i, i == 0 ? 3u : 1u}, rule, clock_of(b)));
        assert_true(b.exchange->tell(key));
        (void)sync_all(&b);
        (void)sync_all(&a);
        assert_int_equal(few->bans->find(key, clock_of(*few)).doublings, 3);
        assert_int_equal(many->bans->find(key, clock_of(*many)).doublings, 3);
        assert_int_equal(left_ms(a, key), left_ms(b, key));
    }

    free_node(&a);
    free_node(&b);
}

static void a_lift_holds_on_both(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);

    (void)state;

    ban(&a, 1);
    ban(&a, 2);
    (void)sync_all(&a);
    (void)sync_all(&b);

    lift(&b, 1);
    (void)sync_all(&b);
    (void)sync_all(&a);
    assert_int_equal(left_ms(a, 1), 0);
    assert_int_equal(left_ms(b, 1), 0);
    assert_int_equal(left_ms(a, 2), 10 * MINUTE_MS);

    /* a node that was away learns of it up to the end of the ban */
    now_ms += 9 * MINUTE_MS;
    node_t late = make_node(1);
    assert_true(late.bans->set(1, {MINUTE_MS, 0}, rule, clock_of(late)));
    (void)sync_all(&late);
    assert_int_equal(left_ms(late, 1), 0);
    assert_int_equal(left_ms(late, 2), MINUTE_MS);

    /* doublings are forgotten; a ban that begins after a lift holds */
    ban(&a, 1);
    (void)sync_all(&a);
    (void)sync_all(&b);
    assert_int_equal(left_ms(a, 1), 10 * MINUTE_MS);
    assert_int_equal(left_ms(b, 1), 10 * MINUTE_MS);

    /* also if both are told at once */
    lift(&a, 1);
    ban(&a, 1);
    (void)sync_all(&a);
    (void)sync_all(&b);
    assert_int_equal(left_ms(b, 1), 10 * MINUTE_MS);

    /* a ban that was lifted before it was told is not told */
    ban(&a, 3);
    lift(&a, 3);
    (void)sync_all(&a);
    (void)sync_all(&b);
    assert_int_equal(left_ms(b, 3), 0);
    assert_int_equal(a.call.n, 1);
    assert_true(a.call.bans[0].is_lifted);

    free_node(&a);
    free_node(&b);
    free_node(&late);
}

static void many_come_in_parts(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);

    (void)state;

    for (uint64_t key = 1; key <= 2500; key++) {
        ban(&a, key);
    }

    (void)sync_all(&a);
    assert_int_equal(number("ZCARD ends"), 2500);
    assert_int_equal(sync_all(&b), 3);

    for (uint64_t key = 1; key <= 2500; key++) {
        assert_int_equal(left_ms(b, key), 10 * MINUTE_MS);
    }

    free_node(&a);
    free_node(&b);
}

/* What is over leaves Redis with the next ban, and all with the last one. */
static void what_is_over_is_forgotten(void **state) {
    node_t a = make_node(5000);
    redisReply *reply;

    (void)state;

    ban(&a, 1);
    ban(&a, 2);
    (void)sync_all(&a);
    now_ms += 5 * MINUTE_MS;
    ban(&a, 3);
    (void)sync_all(&a);
    assert_int_equal(number("ZCARD ends"), 3);
    now_ms += 5 * MINUTE_MS + 1;

    /* a new node is told what is in force */
    node_t b = make_node(1);
    (void)sync(&b);
    assert_int_equal(b.told, 3);
    assert_int_equal(left_ms(b, 3), 5 * MINUTE_MS - 1);
    assert_int_equal(left_ms(b, 1), 0);

    ban(&a, 4);
    (void)sync_all(&a);
    assert_int_equal(number("ZCARD ends"), 2);
    assert_int_equal(number("ZCARD news"), 3);

    /* the test's clock keeps these */
    for (const char *key : {"GET until:news", "GET until:ends"}) {
        reply = command(key);
        assert_int_equal(strtoull(reply->str, NULL, 10), now_ms + 11 * MINUTE_MS);
        freeReplyObject(reply);
    }

    free_node(&a);
    free_node(&b);
}

/* Redis begins anew, without data. */
static void lost_bans_are_told_again(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);
    uint64_t number_of_bans = 0;

    (void)state;

    ban(&a, 1);
    ban(&b, 2);
    (void)sync_all(&a);
    (void)sync_all(&b);
    (void)sync_all(&a);

    /* its clock may be behind by then, or not; some node calls first */
    for (int64_t step_ms : {-60000, 1, 1000}) {
        freeReplyObject(command("FLUSHALL"));
        now_ms += step_ms;
        a.behind_ms += step_ms;
        b.behind_ms += step_ms;
        ban(&b, 1000 + number_of_bans++);
        (void)sync_all(step_ms == 1 ? &a : &b);
        (void)sync_all(&a);
        (void)sync_all(&b);
        (void)sync_all(&a);

        node_t c = make_node(1);
        (void)sync_all(&c);
        for (uint64_t key : {uint64_t{1}, uint64_t{2}, 999 + number_of_bans}) {
            assert_int_equal(left_ms(a, key), 10 * MINUTE_MS);
            assert_int_equal(left_ms(b, key), 10 * MINUTE_MS);
            assert_int_equal(left_ms(c, key), 10 * MINUTE_MS);
        }

        free_node(&c);
    }

    free_node(&a);
    free_node(&b);
}

/* The clock of Redis was set back: the first node that notices makes all nodes report again. */
static void steps_back_prolong_no_ban(void **state) {
    constexpr uint64_t kStepMs = 60 * MINUTE_MS;
    node_t nodes[] = {make_node(5000), make_node(777777777)};
    (void)state;

    for (uint64_t first : {0, 1}) {
        const uint64_t key = first + 1;
        (void)sync_all(&nodes[0]);
        (void)sync_all(&nodes[1]);
        ban(&nodes[0], key);
        (void)sync_all(&nodes[0]);

        now_ms -= kStepMs;
        for (node_t &node : nodes) {
            node.behind_ms -= kStepMs;
        }
        for (uint64_t call : {first, 1 - first, first, uint64_t{1}}) {
            (void)sync_all(&nodes[call]);
        }

        node_t late = make_node(1);
        (void)sync_all(&late);
        for (const node_t &node : {nodes[0], nodes[1], late}) {
            assert_int_equal(left_ms(node, key), 10 * MINUTE_MS);
        }

        /* once is enough */
        for (node_t &node : nodes) {
            assert_int_equal(sync(&node), BanReply::kDone);
            assert_int_equal(node.told, 0);
        }
        free_node(&late);
    }

    free_node(&nodes[0]);
    free_node(&nodes[1]);
}

/* The orders of a burst of reports are ahead of the clock, which was not set back. */
static void bursts_are_no_steps_back(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);
    (void)state;

    ban(&a, 1);
    (void)sync_all(&a);
    now_ms += 400;
    (void)sync_all(&a);
    (void)sync_all(&b);
    const uint64_t since = a.call.since;
    assert_int_equal(number("ZADD news 1790000120000 0000000000000002"), 1);
    for (node_t *node : {&a, &b, &a}) {
        (void)sync_all(node);
    }
    assert_int_equal(a.call.after, NOW_MS + 120000);
    assert_int_equal(a.call.since, since);

    free_node(&a);
    free_node(&b);
}

/* A node that was cut off during a lift has the ban still when Redis begins anew: the
 * lift holds, whoever banned the key, whoever calls first, and wherever it was lifted. */
static void lost_lifts_are_told_again(void **state) {
    (void)state;

    for (unsigned i = 0; i < 8; i++) {
        (void)forget_all(state);
        node_t nodes[] = {make_node(5000), make_node(777777777), make_node(4000000)};
        node_t *away = &nodes[1];
        const uint64_t key = 1 + i;

        ban(&nodes[i & 1], key);
        for (unsigned round = 0; round < 2; round++) {
            for (node_t &node : nodes) {
                (void)sync_all(&node);
            }
        }

        now_ms += 5000;
        lift(&nodes[0], key);
        (void)sync_all(&nodes[0]);
        (void)sync_all(&nodes[2]);
        freeReplyObject(command("FLUSHALL"));
        now_ms += 5 * MINUTE_MS;

        /* the node that was told of the lift knows it as well as the one that told */
        if ((i & 4) != 0) {
            free_node(&nodes[0]);
            nodes[0] = make_node(5000);
        }

        for (unsigned call = 0; call < 9; call++) {
            (void)sync_all(&nodes[((i & 2) != 0 ? call : call + 1) % 3]);
        }

        node_t late = make_node(1);
        (void)sync_all(&late);
        assert_int_equal(left_ms(*away, key), 0);
        assert_int_equal(left_ms(late, key), 0);
        free_node(&late);
        for (node_t &node : nodes) {
            assert_int_equal(left_ms(node, key), 0);
            assert_int_equal(sync(&node), BanReply::kDone);
            assert_int_equal(node.told, 0);
            free_node(&node);
        }
    }
}

/* A key that was banned anew after its lift stays banned, though Redis is told of the
 * lift again after the ban. */
static void lost_lifts_end_no_later_ban(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);

    (void)state;

    ban(&b, 1);
    (void)sync_all(&b);
    (void)sync_all(&a);
    now_ms += 5000;
    lift(&a, 1);
    (void)sync_all(&a);
    (void)sync_all(&b);
    assert_int_equal(left_ms(b, 1), 0);

    /* the other node is cut off, or is not */
    for (bool is_away : {true, false}) {
        now_ms += 5000;
        (void)b.bans->lift(1, clock_of(b));
        ban(&b, 1);
        (void)sync_all(&b);
        if (!is_away) { (void)sync_all(&a); }

        freeReplyObject(command("FLUSHALL"));
        now_ms += 5000;
        for (unsigned call = 0; call < 6; call++) {
            (void)sync_all(call % 2 == 0 ? &b : &a);
        }

        assert_int_equal(left_ms(a, 1), 10 * MINUTE_MS - 5000);
        assert_int_equal(left_ms(b, 1), 10 * MINUTE_MS - 5000);
    }

    free_node(&a);
    free_node(&b);
}

/* A replica takes over that has not received the last ban. */
static void bans_that_no_replica_got_are_told_again(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);

    (void)state;

    ban(&a, 1);
    (void)sync_all(&a);
    now_ms += 1000;
    ban(&a, 2);
    (void)sync_all(&a);
    assert_int_equal(number("ZREM news 0000000000000002"), 1);
    assert_int_equal(number("ZREM ends 0000000000000002"), 1);
    (void)sync_all(&a);
    (void)sync_all(&b);
    assert_int_equal(left_ms(b, 2), 10 * MINUTE_MS);

    free_node(&a);
    free_node(&b);
}

/* A call of a worker that dies, or whose reply is lost, is made again. */
static void lost_replies_lose_no_ban(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);

    (void)state;

    (void)sync(&a);
    ban(&a, 1);
    (void)sync(&a, true);
    ban(&a, 2);
    now_ms += 3000;
    (void)sync(&a);
    assert_int_equal(a.call.n, 2);
    (void)sync(&b, true);
    (void)sync(&b);
    assert_int_equal(left_ms(b, 1), 10 * MINUTE_MS - 3000);
    assert_int_equal(left_ms(b, 2), 10 * MINUTE_MS - 3000);
    (void)sync(&a);
    assert_int_equal(a.call.n, 0);

    /* a ban of a key of whose last one a call is under way */
    ban(&a, 3);
    BanCall call;
    a.exchange->fill(&call, *a.bans, rule, clock_of(a));
    assert_true(a.bans->lift(3, clock_of(a)));
    ban(&a, 3);
    const auto after = static_cast<int64_t>(call.after);
    const int64_t reply[] = {NOW_MS, 0, NOW_MS, after, after};
    assert_int_equal(a.exchange->read(call, reply, 5, a.bans, rule, clock_of(a)), BanReply::kDone);
    a.exchange->fill(&call, *a.bans, rule, clock_of(a));
    assert_int_equal(call.n, 1);

    free_node(&a);
    free_node(&b);
}

/* Redis runs a call long after it was sent: it is told again, and the ban ends when it
 * would have. */
static void late_calls_prolong_no_ban(void **state) {
    node_t a = make_node(5000);
    node_t b = make_node(777777777);

    (void)state;

    (void)sync_all(&a);
    ban(&a, 1);
    for (uint64_t late_ms : {400, 2000, 300000}) {
        a.behind_ms += late_ms;
        now_ms += late_ms;
        (void)sync(&a, true);
        a.behind_ms -= late_ms;
    }

    (void)sync_all(&b);
    assert_int_equal(left_ms(b, 1), 10 * MINUTE_MS - 302000);
    assert_int_equal(sync(&a), BanReply::kDone);
    assert_int_equal(a.call.n, 1);

    /* another server has another time; one that is behind is told of the first ban again */
    for (int step_ms : {-3600000, 7200000}) {
        now_ms += step_ms;
        a.behind_ms += step_ms;
        ban(&a, now_ms);
        (void)sync_all(&a);
        assert_int_equal(a.call.n, step_ms < 0 ? 2 : 1);
        assert_int_equal(left_ms(a, now_ms), 10 * MINUTE_MS);
        (void)sync_all(&b);
        assert_int_equal(left_ms(b, now_ms), 10 * MINUTE_MS);
    }

    free_node(&a);
    free_node(&b);
}

static void bounds_what_waits(void **state) {
    node_t a = make_node(5000, BanExchange::kBytesMin);
    uint64_t n = 0;

    (void)state;

    while (a.exchange->tell(++n)) {}

    assert_in_range(n, 100, BanExchange::kBytesMin / 8);
    for (n = 1; a.exchange->tell_lifted(n, 5000); n++) {}

    assert_in_range(n, 60, 65);

    /* what is not in force does not wait */
    (void)sync_all(&a);
    assert_true(a.exchange->tell(1));
    assert_true(a.exchange->tell_lifted(1, 5000));

    free_node(&a);
}

static void other_replies_are_invalid(void **state) {
    node_t a = make_node(5000);
    constexpr int64_t kLargest = INT64_MAX;
    const struct {
        size_t n;
        int64_t numbers[9];
    } replies[] = {
        {0, {}},
        {5, {NOW_MS, 0, -1, 0, 0}},
        {5, {NOW_MS, 0, kLargest, 0, 0}},
        {1, {NOW_MS}},
        {5, {-1, 0, 5, 0, 0}},
        {5, {kLargest, 0, 5, 0, 0}},
        {4, {NOW_MS, 0, 5, 0}},
        {6, {NOW_MS, 0, 5, 0, 0, 0}},
        {7, {NOW_MS, 0, 5, 0, 0, 0, 0}},
        {5, {NOW_MS, 1, 5, 0, 0}}, /* nothing can be lost */
        {5, {NOW_MS, 4, 5, 0, 0}},
        {5, {NOW_MS, -1, 5, 0, 0}},
        {5, {NOW_MS, 0, 5, -1, 0}},
        {5, {NOW_MS, 0, 5, 0, -1}},
        {5, {NOW_MS, 0, 5, 2, 1}},
        {5, {NOW_MS, 0, 5, 1, kLargest}},
        {5, {NOW_MS, 0, 5, kLargest, kLargest}},
        {8, {NOW_MS, 0, 5, 1, 1, -1, 1, 320}},
        {8, {NOW_MS, 0, 5, 1, 1, 1, -1, 320}},
        {8, {NOW_MS, 0, 5, 1, 1, int64_t{1} << 32, 1, 320}},
        {8, {NOW_MS, 0, 5, 1, 1, 1, int64_t{1} << 32, 320}},
        {8, {NOW_MS, 0, 5, 1, 1, 1, 1, 0}},
        {8, {NOW_MS, 0, 5, 1, 1, 1, 1, -320}},
        {8, {NOW_MS, 0, 5, 1, 1, 1, 1, kLargest}},
        {9, {NOW_MS, 0, 5, 1, 1, 1, 1, 320, 1}},
    };

    (void)state;

    (void)sync(&a);
    ban(&a, 7);
    a.exchange->fill(&a.call, *a.bans, rule, clock_of(a));

    for (const auto &reply : replies) {
        assert_int_equal(a.exchange->read(a.call, reply.numbers, reply.n, a.bans, rule, 5000),
                         BanReply::kInvalid);
    }

    assert_int_equal(a.bans->banned(5000, 100000), 1);
    a.exchange->fill(&a.call, *a.bans, rule, clock_of(a));
    assert_int_equal(a.call.n, 1);

    /* nobody bans for longer than this node would */
    const int64_t reply[] = {NOW_MS, 0, 1, 1, 1, 0, 9, (static_cast<int64_t>(YEAR_MS) << 5) + 30};
    assert_int_equal(a.exchange->read(a.call, reply, 8, a.bans, rule, 5000), BanReply::kDone);
    assert_int_equal(left_ms(a, 9), DAY_MS);

    free_node(&a);
}

static void one_worker_asks_at_a_time(void **state) {
    node_t a = make_node(5000);
    BanExchange &exchange = *a.exchange;

    (void)state;

    assert_true(exchange.take_turn(5000));
    assert_false(exchange.take_turn(5000));
    assert_int_equal(exchange.wait_ms(5000, true), kBanPollMs);
    assert_int_equal(exchange.wait_ms(5000, false), kBanPollMs + kBanTurnMs);

    /* a worker whose clock is behind */
    assert_false(exchange.take_turn(4990));
    assert_int_equal(exchange.wait_ms(4000, true), kBanPollMs);

    assert_false(exchange.take_turn(5000 + kBanPollMs - 1));
    assert_true(exchange.take_turn(5000 + kBanPollMs));

    /* the one that has asked may be dead */
    assert_int_equal(exchange.wait_ms(7000, false), kBanTurnMs);
    assert_int_equal(exchange.wait_ms(7000, true), 1);
    assert_true(exchange.take_turn(7000));

    for (uint32_t random = 0; random < 1000; random++) {
        exchange.failed(7000, random);
        assert_in_range(exchange.wait_ms(7000, true), kBanRetryMs / 2, kBanRetryMs);
    }

    free_node(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(holds_on_the_other_node, forget_all),
        cmocka_unit_test_setup(doubles_on_the_other_node, forget_all),
        cmocka_unit_test_setup(the_later_end_wins, forget_all),
        cmocka_unit_test_setup(more_doublings_win, forget_all),
        cmocka_unit_test_setup(a_lift_holds_on_both, forget_all),
        cmocka_unit_test_setup(many_come_in_parts, forget_all),
        cmocka_unit_test_setup(what_is_over_is_forgotten, forget_all),
        cmocka_unit_test_setup(lost_bans_are_told_again, forget_all),
        cmocka_unit_test_setup(steps_back_prolong_no_ban, forget_all),
        cmocka_unit_test_setup(bursts_are_no_steps_back, forget_all),
        cmocka_unit_test_setup(lost_lifts_are_told_again, forget_all),
        cmocka_unit_test_setup(lost_lifts_end_no_later_ban, forget_all),
        cmocka_unit_test_setup(bans_that_no_replica_got_are_told_again, forget_all),
        cmocka_unit_test_setup(lost_replies_lose_no_ban, forget_all),
        cmocka_unit_test_setup(late_calls_prolong_no_ban, forget_all),
        cmocka_unit_test_setup(bounds_what_waits, forget_all),
        cmocka_unit_test_setup(other_replies_are_invalid, forget_all),
        cmocka_unit_test_setup(one_worker_asks_at_a_time, forget_all),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
