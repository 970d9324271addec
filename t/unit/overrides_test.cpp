/* Copyright (C) the limit_sliding authors */

/* The table of the overrides. */

#include "processes.hpp"
#include "zone_memory.hpp"

#define MILLION 1000000
#define NOW_S 1800000000
#define KEYS 300

using Entry = Overrides::Entry;

static Overrides *make_table(size_t keys) {
    auto *table = share<Overrides>(Overrides::bytes_for(keys));

    table->init(keys);
    return table;
}

static void free_table(Overrides *table, size_t keys) { munmap(table, Overrides::bytes_for(keys)); }

static Entry entry_of(uint64_t limit, uint64_t at = 0) { return {{limit, {}}, kNoEnd, at}; }

static bool set(Overrides *table, uint64_t hash, uint64_t limit) {
    return table->set(hash, entry_of(limit), NOW_S);
}

static auto at(uint64_t now_s) {
    return [=] { return now_s; };
}

static uint64_t find(const Overrides *table, uint64_t hash) {
    Override own = {};

    return table->find(hash, at(NOW_S), &own) ? own.limit : kLimitUnset;
}

static uint64_t hash_of(uint64_t i) {
    uint64_t random = i;

    return random_next(&random);
}

static void keeps_limits(void **state) {
    Overrides *table = make_table(100);

    (void)state;

    assert_int_equal(table->count(), 0);
    assert_int_equal(find(table, 0), kLimitUnset);

    /* a hash of zeroes, and keys that share their lines with it */
    for (uint64_t hash = 0; hash < 20; hash++) {
        assert_true(set(table, hash * 2, hash + 1));
    }

    Entry entry;
    uint64_t absent = hash_of(1);
    assert_false(table->find(absent, &entry));
    assert_in_range(table->place_after(absent), 0, Overrides::bytes_for(100) / 64 * 3);

    assert_true(set(table, UINT64_MAX, kLimitMax));
    assert_true(set(table, 3 * 2, kLimitOff));
    assert_true(set(table, 4 * 2, kLimitBlocked));
    assert_int_equal(table->count(), 21);

    assert_int_equal(find(table, 0), 1);
    assert_int_equal(find(table, 3 * 2), kLimitOff);
    assert_int_equal(find(table, 4 * 2), kLimitBlocked);
    assert_int_equal(find(table, 19 * 2), 20);
    assert_int_equal(find(table, 1 << 20), kLimitUnset);
    assert_int_equal(find(table, UINT64_MAX), kLimitMax);

    for (uint64_t hash = 0; hash < 20; hash++) {
        assert_true(set(table, hash * 2, kLimitUnset));
        assert_true(set(table, hash * 2, kLimitUnset));
        assert_int_equal(find(table, hash * 2), kLimitUnset);
    }

    assert_int_equal(table->count(), 1);
    free_table(table, 100);
}

static void keeps_windows_and_ends(void **state) {
    static const Window windows[]
        = {{}, {kWindowMinMs}, {kWindowMaxMs}, Window::of(Calendar::kMonth)};
    static const uint64_t ends_s[] = {kNoEnd, NOW_S + 1, NOW_S + 1000, UINT32_MAX - 1};
    Overrides *table = make_table(100);

    (void)state;

    for (const Window &window : windows) {
        for (uint64_t end_s : ends_s) {
            Entry entry;

            assert_true(table->set(7, {{5, window}, end_s, UINT32_MAX}, NOW_S));
            assert_true(table->find(7, &entry));
            assert_true(entry.own == (Override{5, window}));
            assert_int_equal(entry.until_s, end_s);
            assert_int_equal(entry.at, UINT32_MAX);

            Override own = {};
            assert_true(table->find(7, at(NOW_S), &own));
            assert_true(end_s == kNoEnd || !table->find(7, at(end_s), &own));
            assert_true(table->find(7, at(end_s - 1), &own));
        }
    }

    /* one that has ended is no limit, and may be set again */
    assert_true(table->set(7, {{5, {}}, NOW_S - 1, 0}, NOW_S));
    assert_int_equal(find(table, 7), kLimitUnset);
    assert_int_equal(table->count(), 1);
    assert_true(set(table, 7, 6));
    assert_int_equal(find(table, 7), 6);
    assert_int_equal(table->count(), 1);

    assert_true(table->set(8, {{5, {}}, NOW_S, 0}, NOW_S));
    assert_int_equal(table->count(), 2);
    table->remove_ended(NOW_S);
    assert_int_equal(table->count(), 1);
    assert_int_equal(find(table, 7), 6);
    free_table(table, 100);
}

/* There is room for so many, in no more bytes than promised. */
static void has_room_for_all(void **state) {
    (void)state;

    for (size_t keys = 1; keys <= MILLION; keys = keys < 2000 ? keys + 1 : keys * 10) {
        Overrides *table = make_table(keys);

        assert_true(keys < 1024 || Overrides::bytes_for(keys) <= 24 * keys);

        for (uint64_t i = 0; i < keys; i++) {
            assert_true(set(table, hash_of(i), 1 + i));
        }

        assert_int_equal(table->count(), keys);
        assert_false(set(table, hash_of(keys), 1));
        assert_true(set(table, hash_of(keys / 2), 7));
        assert_int_equal(find(table, hash_of(keys / 2)), 7);
        assert_true(set(table, hash_of(keys / 2), kLimitUnset));
        assert_true(set(table, hash_of(keys), 8));
        assert_int_equal(find(table, hash_of(keys)), 8);
        free_table(table, keys);
    }
}

/* Places are used again, so nothing leaks however long it goes on. */
static void forgets_what_is_gone(void **state) {
    const uint64_t all = draws(300000);
    Overrides *table = make_table(2000);

    (void)state;

    for (uint64_t i = 0; i < all; i++) {
        assert_true(set(table, hash_of(i), 7));
        if (i >= 2000 - 1) { assert_true(set(table, hash_of(i - (2000 - 1)), kLimitUnset)); }
    }

    assert_int_equal(table->count(), 2000 - 1);
    for (uint64_t i = 0; i < all; i++) {
        assert_int_equal(find(table, hash_of(i)), i > all - 2000 ? 7 : kLimitUnset);
    }

    free_table(table, 2000);
}

/* A walk meets each key once, from wherever it begins. */
static void walks(void **state) {
    Overrides *table = make_table(KEYS);
    uint64_t seen = 0, place = 0, half = 0, left = UINT64_MAX;
    uint32_t tag, tags[KEYS];
    Entry entry;

    (void)state;

    for (uint64_t i = 0; i < KEYS; i++) {
        assert_true(table->set(hash_of(i), entry_of(1 + i, i), NOW_S));
    }

    while (table->next(&place, &left, &entry, &tag)) {
        assert_true(Overrides::is_of(tag, hash_of(entry.at)));
        assert_false(Overrides::is_of(tag, hash_of(entry.at) ^ 2));
        tags[seen++] = tag;
        if (seen == KEYS / 2) { half = entry.at; }
    }

    assert_int_equal(seen, KEYS);
    place = table->place_after(hash_of(half));
    for (seen = KEYS / 2; table->next(&place, &left, &entry, &tag); seen++) {
        assert_int_equal(tag, tags[seen]);
    }

    assert_int_equal(seen, KEYS);
    free_table(table, KEYS);
}

/* Returns how many keys a walk meets, which looks at so many lines at a time. */
static uint64_t walk(const Overrides *table, uint64_t lines, uint64_t *walked) {
    uint64_t seen = 0, place = 0, left;
    uint32_t tag;
    Entry entry;

    *walked = 0;
    do {
        for (left = lines; table->next(&place, &left, &entry, &tag);) {
            seen++;
        }

        *walked += lines - left;
    } while (left == 0);

    return seen;
}

/* A walk looks at lines that have been touched, in parts that do not matter. */
static void walks_what_was_touched(void **state) {
    Overrides *table = make_table(MILLION);
    uint64_t walked;
    uint64_t place = UINT64_MAX, left = 1;
    uint32_t tag;
    Entry entry;

    (void)state;

    assert_int_equal(walk(table, 10, &walked), 0);
    assert_int_equal(walked, 0);

    for (uint64_t i = 1; i <= KEYS; i++) {
        assert_true(set(table, hash_of(i), i));
        if (i != 1 && i != KEYS) { continue; }

        for (uint64_t lines : {1, 7, 64, MILLION}) {
            assert_int_equal(walk(table, lines, &walked), i);
            assert_in_range(walked, i, 64 * i);
        }
    }

    /* a load leaves no more than it has loaded */
    void *scratch = calloc(1, OverridesLoad::scratch_bytes(*table));
    OverridesLoad load(*table, scratch);
    assert_true(load.set(hash_of(5), entry_of(5), NOW_S));
    assert_true(load.set(hash_of(KEYS + 1), entry_of(6), NOW_S));
    load.end();
    free(scratch);
    assert_int_equal(walk(table, 10, &walked), 2);
    assert_in_range(walked, 2, 128);

    /* any number is a place */
    assert_false(table->next(&place, &left, &entry, &tag));
    free_table(table, MILLION);
}

/* Reads "lines" of key, limit: a limit of 0 takes away, kLimitOff has ended. */
template <size_t N>
static void load(Overrides *table, const uint64_t (&lines)[N][2], bool is_known = true) {
    void *scratch = calloc(1, OverridesLoad::scratch_bytes(*table));
    OverridesLoad load(*table, scratch);

    /* Returns the limit of the last line of a key. */
    auto last_of = [&](uint64_t key) {
        uint64_t last = kLimitUnset;

        for (const auto &line : lines) {
            if (line[0] == key) { last = line[1] == kLimitOff ? kLimitUnset : line[1]; }
        }

        return last;
    };

    if (is_known) {
        for (uint64_t i = 0; i < N; i++) {
            load.mark(lines[i][0], i);
        }

        load.remove_unmarked();
    }

    for (uint64_t i = 0; i < N; i++) {
        Entry entry = entry_of(lines[i][1], i);
        if (lines[i][1] == kLimitOff) { entry.until_s = NOW_S; }

        uint64_t before = find(table, lines[i][0]);

        load.set(lines[i][0], entry, NOW_S);

        /* no line but the last one is ever seen, if there was room */
        uint64_t seen = find(table, lines[i][0]);

        if (is_known && N < table->max()) {
            assert_true(seen == before || seen == last_of(lines[i][0]));
        }
    }

    load.end();
    free(scratch);
}

static void loads(void **state) {
    Overrides *table = make_table(3);
    Entry entry;

    (void)state;

    load(table, {{1, 10}, {3, 20}, {1, 11}, {5, 30}, {3, 0}, {9, kLimitOff}});
    assert_int_equal(table->count(), 2);
    assert_int_equal(find(table, 1), 11);
    assert_int_equal(find(table, 3), kLimitUnset);
    assert_int_equal(find(table, 5), 30);
    assert_true(table->find(1, &entry));
    assert_int_equal(entry.at, 2);

    /* a key goes, one comes, one has ended, the last line counts */
    load(table, {{7, 40}, {5, 31}, {1, 12}, {5, 32}, {1, kLimitOff}});
    assert_int_equal(table->count(), 2);
    assert_int_equal(find(table, 1), kLimitUnset);
    assert_int_equal(find(table, 5), 32);
    assert_int_equal(find(table, 7), 40);

    /* keys that have no limit in the end take nobody's room */
    load(table, {{21, 1}, {23, 1}, {25, 1}, {21, 0}, {23, 0}, {25, 0}, {5, 33}, {27, 2}, {29, 3}});
    assert_int_equal(table->count(), 3);
    assert_int_equal(find(table, 5), 33);
    assert_int_equal(find(table, 27), 2);
    assert_int_equal(find(table, 29), 3);

    /* one too many: the first ones have room */
    load(table, {{11, 60}, {13, 70}, {15, 80}, {17, 90}});
    assert_int_equal(table->count(), 3);
    assert_int_equal(find(table, 15), 80);
    assert_int_equal(find(table, 17), kLimitUnset);
    free_table(table, 3);
}

/* If memory is damaged so that no place is free, there is no room, whatever the count is. */
static void survives_damage(void **state) {
    Overrides *table = make_table(3);
    void *scratch = calloc(1, OverridesLoad::scratch_bytes(*table));
    OverridesLoad load(*table, scratch);

    (void)state;
    memset((void *)(table + 1), 0xff, Overrides::bytes_for(3) - sizeof(*table));

    assert_false(set(table, 2, 10));
    load.mark(2, 0);
    assert_false(load.set(2, entry_of(10), NOW_S));
    assert_int_equal(find(table, 2), kLimitUnset);

    free(scratch);
    free_table(table, 3);
}

/* Loads at random, against a plain list; lookups do not get longer by that. */
static void loads_whatever_comes(void **state) {
    Overrides *table = make_table(KEYS);
    uint64_t random = 1;

    (void)state;

    for (int round = 0; round < 200; round++) {
        static uint64_t lines[3 * KEYS][2];
        uint64_t last[2 * KEYS] = {};
        uint64_t held = 0;
        const uint64_t first = random_below(&random, 2) * KEYS;

        for (auto &line : lines) {
            const uint64_t key = first + random_below(&random, KEYS);

            line[0] = hash_of(key);
            line[1] = random_below(&random, 3) == 0 ? 0 : 1 + random_below(&random, 1000);
            last[key] = line[1];
        }

        load(table, lines);

        for (uint64_t key = 0; key < 2 * KEYS; key++) {
            assert_int_equal(find(table, hash_of(key)), last[key]);
            held += last[key] != 0;
        }

        assert_int_equal(table->count(), held);
    }

    free_table(table, KEYS);
}

/* A writer changes, removes and adds keys, and readers find none but what it wrote. */
struct Race {
    Overrides *table;
    std::atomic<bool> ended;
};

static void *read_limits(void *data) {
    auto *race = static_cast<Race *>(data);

    while (!race->ended) {
        for (uint64_t i = 0; i < KEYS; i++) {
            Override own;

            if (!race->table->find(hash_of(i), at(NOW_S), &own)) {
                assert_true(i % 3 != 0);
                continue;
            }

            assert_int_equal(own.limit % KEYS, i);
            assert_int_equal(own.window.ms, own.limit >= 10 * KEYS ? MINUTE_MS : 0);
        }
    }

    return NULL;
}

static void is_read_while_it_changes(void **state) {
    Race race = {make_table(KEYS), {false}};
    pthread_t threads[THREADS];
    uint64_t random = 3;

    (void)state;

    const auto write = [&](uint64_t i) {
        const uint64_t limit = i + KEYS * (1 + random_below(&random, 20));
        const Window window = {limit >= 10 * KEYS ? MINUTE_MS : 0};
        const uint64_t until_s = random_below(&random, 2) != 0 ? kNoEnd : NOW_S + 9;

        assert_true(race.table->set(hash_of(i), {{limit, window}, until_s, 0}, NOW_S));
    };

    for (uint64_t i = 0; i < KEYS; i++) {
        write(i);
    }

    for (auto &thread : threads) {
        assert_int_equal(pthread_create(&thread, NULL, read_limits, &race), 0);
    }

    /* each third key has a limit all the time; others make room for each other */
    for (unsigned n = 0; n < 100000; n++) {
        const uint64_t i = random_below(&random, KEYS);

        if (i % 3 == 0 || random_below(&random, 2) != 0) {
            write(i);
        } else {
            set(race.table, hash_of(i), kLimitUnset);
        }
    }

    race.ended = true;
    for (auto &thread : threads) {
        pthread_join(thread, NULL);
    }

    free_table(race.table, KEYS);
}

/* A writer dies at any moment: what it was not about is as it was, and whoever loads
 * the file again has all. */
static void survives_the_dead(void **state) {
    Overrides *table = make_table(KEYS);
    auto *doing = share<std::atomic<uint64_t>>(sizeof(uint64_t));

    (void)state;

    for (unsigned round = 0; round < ROUNDS; round++) {
        static uint64_t lines[KEYS][2];
        pid_t pid = fork();

        if (pid == 0) {
            uint64_t random = round;

            for (;;) {
                const uint64_t i = random_below(&random, KEYS);

                *doing = i;
                set(table, hash_of(i), i % 2 == 0 || random_below(&random, 2) != 0 ? 1 + i : 0);
            }
        }

        usleep(200 + 17 * (round % 64));
        kill(pid, SIGKILL);
        expect_exit(pid, true);

        uint64_t held = 0;
        for (uint64_t i = 0; i < KEYS; i++) {
            const uint64_t found = find(table, hash_of(i));

            assert_true(found == 1 + i || found == kLimitUnset);
            held += found != kLimitUnset;

            /* keys that are never taken away stay, once they are there */
            assert_true(round == 0 || i % 2 != 0 || i == *doing || found != kLimitUnset);
            lines[i][0] = hash_of(i);
            lines[i][1] = 1 + i;
        }

        assert_true(table->count() >= held);
        load(table, lines);
        assert_int_equal(table->count(), KEYS);

        for (uint64_t i = 0; i < KEYS; i++) {
            assert_int_equal(find(table, hash_of(i)), 1 + i);
        }
    }

    free_table(table, KEYS);
}

/* A file that has no lines touches nothing. */
static void loads_nothing(void **state) {
    Overrides *table = make_table(KEYS);

    (void)state;

    void *scratch = calloc(1, OverridesLoad::scratch_bytes(*table));
    OverridesLoad(*table, scratch).end();
    assert_int_equal(table->count(), 0);

    free(scratch);
    free_table(table, KEYS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_limits),
        cmocka_unit_test(keeps_windows_and_ends),
        cmocka_unit_test(has_room_for_all),
        cmocka_unit_test(forgets_what_is_gone),
        cmocka_unit_test(walks),
        cmocka_unit_test(walks_what_was_touched),
        cmocka_unit_test(loads),
        cmocka_unit_test(loads_nothing),
        cmocka_unit_test(survives_damage),
        cmocka_unit_test(loads_whatever_comes),
        cmocka_unit_test(is_read_while_it_changes),
        cmocka_unit_test(survives_the_dead),
    };

    return cmocka_run_group_tests_name("own limits", tests, NULL, NULL);
}
