/* Copyright (C) the limit_sliding authors */

/*
 * Overrides of keys: the scripts in a real Redis take the same texts as
 * Override::parse() does, for the same limits and windows; and a key has a history
 * in each window.
 */

#include <stdio.h>

#include "core/policy/override.hpp"
#include "redis/protocol/remote_state.hpp"
#include "redis_script.hpp"
#include "replies.hpp"

#define START_MS 1700000000000ull
#define BATCH 50
#define ROUNDS draws(120)

namespace {

constexpr Algorithm kAlgorithms[]
    = {Algorithm::kInFlight, Algorithm::kCounter,     Algorithm::kLog,
       Algorithm::kFixed,    Algorithm::kTokenBucket, Algorithm::kLeakyBucket};

/* Units in flight have no window. */
Policy policy_of(uint64_t window_ms, Algorithm algorithm) {
    return {algorithm == Algorithm::kInFlight ? 0 : window_ms, algorithm};
}

/* Bytes, any that there are. */
struct Text {
    char bytes[120];
    size_t size;

    void add(const char *text) {
        assert_true(size + strlen(text) < sizeof(bytes));
        memcpy(bytes + size, text, strlen(text));
        size += strlen(text);
    }

    void add(uint64_t number) {
        char text[24];
        snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
        add(text);
    }

    void replace(size_t at, size_t n, const char *by, size_t length) {
        memmove(bytes + at + length, bytes + at + n, size - at - n);
        memcpy(bytes + at, by, length);
        size = size - n + length;
    }
};

Text text_of(const char *bytes) {
    Text text = {};
    text.add(bytes);
    return text;
}

/* The words of a command. */
struct Words {
    const char *argv[300];
    size_t length[300];
    Text text[300];
    size_t n;

    void add(const Text &word) {
        assert_true(n < LENGTH(text));
        text[n] = word;
        argv[n] = text[n].bytes;
        length[n] = word.size;
        n++;
    }

    void add(const char *word) { add(text_of(word)); }

    void add(uint64_t number) {
        Text word = {};
        word.add(number);
        add(word);
    }

    void add_key(uint64_t number, const char *suffix) {
        const bool is_key = *suffix == '\0';
        Text word = text_of(is_key ? "k" : "{k");
        word.add(number);
        word.add(suffix);
        add(word);
    }

    redisReply *run() {
        auto *reply = static_cast<redisReply *>(
            redisCommandArgv(server.context, static_cast<int>(n), argv, length));
        assert_non_null(reply);
        if (reply->type == REDIS_REPLY_ERROR) { fail_msg("%s", reply->str); }

        return reply;
    }
};

/* Returns the reply to a call of words with blanks in between, but for its time;
 * the script is for zones whose costs are settled if `settles`. */
const char *call(uint64_t now_ms, const char *text, bool settles = false) {
    static Words words;
    words.n = 0;
    words.add("EVALSHA");
    words.add(script_sha[settles ? 2 : 0]);

    for (const char *p = text; *p != '\0';) {
        const size_t length = strcspn(p, " ");
        Text word = {};
        memcpy(word.bytes, p, length);
        word.size = length;
        words.add(word);
        p += length + (p[length] == ' ');
    }

    words.add(now_ms);
    return numbers_of(words.run());
}

void set(const char *key, const char *value) {
    freeReplyObject(redisCommand(server.context, "SET %s %s", key, value));
}

/* Checks what hold_script() has read of a text, from an element of its reply on. */
void check_terms(const Text &text, const Policy &policy, const int64_t *elements, size_t n,
                 size_t *next) {
    Override own = {};
    const bool is_own = own.parse({text.bytes, text.size}, policy, policy.limit_max(true));
    KeyTerms terms;
    assert_true(terms.read(elements, n, next));
    if (terms.own != own || terms.is_malformed == is_own) {
        fail_msg("\"%.*s\" in flight: %llu, not %llu", (int)text.size, text.bytes,
                 (unsigned long long)terms.own.limit, (unsigned long long)own.limit);
    }

    /* one unit is in use, and another one is wanted */
    const bool has_room = terms_of(own) != Terms::kBlocked && own.limit != 1;
    assert_int_equal(elements[(*next)++], has_room);
    assert_int_equal(elements[(*next)++], 1 + has_room);
    assert_false(terms.is_foreign);
    assert_int_equal(terms.owed, 0);
}

/* Has one call of hold_script() read all of the texts. */
void check_held(const Text *texts, size_t n, const Policy &policy) {
    static constexpr char kHolder[] = "holder:0000000000000001";
    set(kHolder, "1");
    auto *loaded = static_cast<redisReply *>(
        redisCommand(server.context, "SCRIPT LOAD %b", hold_script().data(), hold_script().size()));
    assert_int_equal(loaded->type, REDIS_REPLY_STRING);

    static Words words;
    words.n = 0;
    words.add("EVALSHA");
    words.add(loaded->str);
    freeReplyObject(loaded);
    words.add(uint64_t{2 + 2 * n});
    words.add(kHolder);
    words.add("grace");
    for (size_t i = 0; i < n; i++) {
        words.add_key(i, "}");
        words.add_key(i, "}:limit");
    }

    for (const char *word : {"1", "1000", "1 1 1000"}) {
        words.add(word);
    }

    redisReply *reply = words.run();
    int64_t elements[1 + 4 * LENGTH(words.text)];
    const size_t nelements = reply->elements;
    for (size_t i = 0; i < nelements; i++) {
        elements[i] = reply->element[i]->integer;
    }
    freeReplyObject(reply);

    size_t next = 1;
    for (size_t i = 0; i < n; i++) {
        check_terms(texts[i], policy, elements, nelements, &next);
    }
    assert_int_equal(next, nelements);
}

/* Checks what the script has read of a text, from these elements of its reply on.
 * Returns how many they are. */
size_t check(const Text &text, const Policy &policy, redisReply *const *element) {
    Override own = {};
    const bool is_own = own.parse({text.bytes, text.size}, policy, policy.limit_max(true));
    const long long limit = element[0]->integer;
    const bool has_window = is_own && own.window.is_given();
    const long long expected
        = !is_own                              ? -7
          : terms_of(own) == Terms::kUnlimited ? 0
          : terms_of(own) == Terms::kBlocked
              ? kScriptOwn
              : kScriptOwn + static_cast<long long>(own.limit) + (has_window ? kScriptWindow : 0);

    if (limit != expected) {
        fail_msg("\"%.*s\", algorithm %d, window %llu ms: %lld, not %lld", (int)text.size,
                 text.bytes, static_cast<int>(policy.algorithm),
                 static_cast<unsigned long long>(policy.window_ms), limit, expected);
    }

    if (has_window) { assert_int_equal(element[1]->integer, own.window.code()); }

    const size_t before = has_window ? 2 : 1;
    return before + remote_values(policy, element[before]->integer);
}

/* Has one call of the script read all of the texts. */
void check_all(const Text *texts, size_t n, const Policy &policy) {
    static Words words;
    words.n = 0;
    words.add("MSET");
    for (size_t i = 0; i < n; i++) {
        words.add_key(i, "}:limit");
        words.add(texts[i]);
    }
    freeReplyObject(words.run());
    if (policy.is_in_flight()) {
        check_held(texts, n, policy);
        return;
    }

    words.n = 0;
    words.add("EVALSHA");
    words.add(script_sha[0]);
    words.add(uint64_t{n});
    for (size_t i = 0; i < n; i++) {
        words.add_key(i, "");
    }

    const uint64_t kind[] = {1, static_cast<uint64_t>(policy.algorithm), policy.window_ms,
                             7, static_cast<uint64_t>(policy.calendar),  0,
                             1};
    for (uint64_t number : kind) {
        words.add(number);
    }

    words.add(START_MS);

    redisReply *reply = words.run();
    size_t next = 1;
    for (size_t i = 0; i < n; i++) {
        assert_true(next + 1 < reply->elements);
        next += 1 + check(texts[i], policy, reply->element + next + 1);
    }
    assert_int_equal(next, reply->elements);
    freeReplyObject(reply);
}

void add_number(Text *text, uint64_t *random) {
    const uint64_t digits = 1 + random_below(random, random_below(random, 4) ? 4 : 20);

    for (uint64_t i = 0; i < digits; i++) {
        text->add(random_below(random, 10));
    }
}

/* Returns a text, mostly one that is nearly an override. */
Text draw(uint64_t *random) {
    static const char *const rates[] = {"r/s", "r/m", "r/h", "r/d"};
    static const char *const units[] = {"y", "M", "w", "d", "h", "m", "s", "ms", ""};
    static const char *const names[] = {"day", "week", "month", "year", "off", "0", "default"};
    static constexpr char kAny[] = "0123456789r/smhdwyMoffa -.\n\0";
    Text text = {};

    add_number(&text, random);
    switch (random_below(random, 4)) {
    case 0:
        text.add(rates[random_below(random, LENGTH(rates))]);
        break;
    case 1:
        text.add("/");
        text.add(names[random_below(random, LENGTH(names))]);
        break;
    case 2:
        text.add("/");
        for (size_t unit = random_below(random, LENGTH(units)); unit < LENGTH(units);
             unit += 1 + random_below(random, 5)) {
            text.size = std::min<size_t>(text.size, 60);
            add_number(&text, random);
            text.add(units[unit]);
        }
        break;
    default:
        if (random_below(random, 2)) { text = text_of(names[random_below(random, LENGTH(names))]); }
    }

    while (random_below(random, 3) == 0 && text.size > 0 && text.size < 100) {
        const size_t at = random_below(random, text.size);
        const char *any = kAny + random_below(random, sizeof(kAny));
        const uint64_t how = random_below(random, 3);

        text.replace(at, how != 0, any, how != 1);
    }

    return text;
}

void reads_what_the_core_reads(void **) {
    uint64_t random = 1;

    for (unsigned i = 0; i < ROUNDS; i++) {
        static constexpr uint64_t kWindows[] = {100, 1000, 60000, 3600000, 86400000, kWindowMaxMs};
        Policy policy = policy_of(kWindows[random_below(&random, LENGTH(kWindows))],
                                  kAlgorithms[i % LENGTH(kAlgorithms)]);
        Text texts[BATCH];

        if (policy.algorithm == Algorithm::kFixed && random_below(&random, 2)) {
            policy.calendar = static_cast<Calendar>(1 + random_below(&random, 4));
            policy.window_ms = Window::of(policy.calendar).ms;
        }

        for (Text &text : texts) {
            text = draw(&random);
        }
        check_all(texts, BATCH, policy);
    }
}

void reads_these(void **) {
    static const char *const words[] = {
        "",          "0",          "off",     "1000/1h", "100/10s",  "5000/month", "7/1h30m",
        "7/90m",     "7/1h30",     "7/60",    "7/1m",    "7/60s",    "7/1m1h",     "7/1m1m",
        "7/100ms",   "7/99ms",     "7/0h1m",  "7/30d",   "7/1M",     "7/31d",      "7/30d1ms",
        "7/1y",      "7/1s500ms",  "7/1s5",   "7/1ms5",  "7/mm",     "7/ms",       "7/s",
        "7/",        "/1h",        "00/1h",   "0/1h",    "007/1h",   "7/1h ",      " 7/1h",
        "7/Month",   "7/monthly",  "7r/1h",   "7r/s/1h", "7/1h/1h",  "4194302/1h", "4194303/1h",
        "r/s",       "7/1000000s", "7/5m100", "7/1d12h", "7/000060", "7/week",     "1",
        "000000001", "4194302",    "4194303", "7r/s",    "00",
    };

    Text texts[LENGTH(words)];
    for (size_t i = 0; i < LENGTH(words); i++) {
        texts[i] = text_of(words[i]);
    }

    for (Algorithm algorithm : kAlgorithms) {
        check_all(texts, LENGTH(texts), policy_of(60000, algorithm));
    }
}

/* 2 an hour in the zone; the key has 3 a day, then again none. */
void has_a_history_in_each_window(void **) {
    for (Algorithm algorithm : kAlgorithms) {
        if (algorithm == Algorithm::kInFlight) { continue; }

        const bool is_queue = algorithm == Algorithm::kLeakyBucket;
        char text[64];

        forget_all();
        snprintf(text, sizeof(text), "1 k 1 %d 3600000 2 %d 1 0 9 1 1", static_cast<int>(algorithm),
                 is_queue);

        /* without a burst a queue would take one */
        assert_int_equal(call(START_MS, text)[0], '2');
        set("{k}:limit", "3/1d");
        const char granted = call(START_MS, text)[0];
        assert_int_equal(granted, is_queue ? '2' : '3');
        assert_int_equal(call(START_MS + 1, text)[0], '0');
        set("{k}:limit", "2");
        assert_int_equal(call(START_MS + 2, text)[0], '0');
        set("{k}:limit", "3/1d");
        assert_int_equal(call(START_MS + 3, text)[0], '0');
        set("{k}:limit", "4/2d");
        assert_int_equal(call(START_MS + 4, text)[0], is_queue ? '2' : '4');
    }
}

/* A request's rate may have a window, which holds unless the key's override does:
 * that has the zone's if it names none. */
void has_the_window_that_is_asked_for(void **) {
    const char *day = "1 k 1 10 3600000 3 0 1 0 86400000 9 1 1";
    const char *hour = "1 k 1 2 3600000 2 0 1 0 9 1 1";

    forget_all();
    assert_string_equal(call(START_MS, day), "3 3 0");
    assert_string_equal(call(START_MS, hour), "2 2 0");
    assert_string_equal(call(START_MS, day), "0 3 3");

    set("{k}:limit", "5");
    assert_string_equal(call(START_MS, day), "3 4503599627370501 2");
    set("{k}:limit", "1r/h");
    assert_string_equal(call(START_MS, day), "0 4503599627370497 5");
    set("{k}:limit", "1/2h");
    assert_string_equal(call(START_MS, day), "1 6755399441055745 7200000 0");
    set("{k}:limit", "9/1d");
    assert_string_equal(call(START_MS, day), "6 6755399441055753 86400000 3");
    set("{k}:limit", "banana");
    assert_string_equal(call(START_MS, day), "0 -3 9");
}

/* All or none: a key that is blocked rejects for the other one, too, and is told
 * so where nothing is consumed; what is settled of it is nothing. */
void is_blocked(void **) {
    forget_all();
    set("{a}:limit", "0");
    assert_string_equal(call(START_MS, "2 a b 1 2 3600000 2 0 1 0 1 2 1 1"),
                        "0 4503599627370496 0 2 0");
    assert_string_equal(call(START_MS, "2 b a 1 2 3600000 2 0 1 0 1 2 1 1"),
                        "0 2 0 4503599627370496 0");
    assert_string_equal(call(START_MS, "1 a 1 2 3600000 2 0 0 1 1 1 1"), "0 4503599627370496 0");
    assert_string_equal(call(START_MS, "1 a 1 2 3600000 2 0 5 4 1 1 1", true),
                        "1 4503599627370496 0");
    assert_string_equal(call(START_MS, "1 a 1 2 3600000 2 0 5 2 1700000000000 0 0 0 1 1 1", true),
                        "1 4503599627370496 0");
}

/* Units go back to the window in which they were taken, if the key still has it. */
void gives_back_in_the_same_window(void **) {
    const char *in_zone = "1 k 1 2 3600000 9 0 1 2 1700000000000 0 0 0 1 1 1";
    const char *in_day = "1 k 1 2 3600000 9 0 1 2 1700000000000 0 0 86400000 1 1 1";
    const char *look = "1 k 1 2 3600000 9 0 1 1 1 1 1";

    forget_all();
    assert_string_equal(call(START_MS, "1 k 1 2 3600000 9 0 1 0 5 1 1", true), "5 9 0");
    set("{k}:limit", "9/1d");
    assert_string_equal(call(START_MS, "1 k 1 2 3600000 9 0 1 0 5 1 1", true),
                        "5 6755399441055753 86400000 0");

    call(START_MS, in_zone, true);
    assert_string_equal(call(START_MS, look, true), "1 6755399441055753 86400000 5");
    call(START_MS, in_day, true);
    assert_string_equal(call(START_MS, look, true), "1 6755399441055753 86400000 4");

    set("{k}:limit", "9");
    call(START_MS, in_day, true);
    assert_string_equal(call(START_MS, look, true), "1 4503599627370505 5");
    call(START_MS, in_zone, true);
    assert_string_equal(call(START_MS, look, true), "1 4503599627370505 4");

    /* by a request whose rate has the window */
    assert_string_equal(
        call(START_MS, "1 k 1 10 3600000 9 0 1 2 1700000000000 0 0 0 86400000 1 1 1", true),
        "1 4503599627370505 0");
    assert_string_equal(call(START_MS, look, true), "1 4503599627370505 3");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_core_reads),
        cmocka_unit_test(reads_these),
        cmocka_unit_test(has_a_history_in_each_window),
        cmocka_unit_test(has_the_window_that_is_asked_for),
        cmocka_unit_test(is_blocked),
        cmocka_unit_test(gives_back_in_the_same_window),
    };

    return cmocka_run_group_tests_name("redis own limits", tests, start, stop);
}
