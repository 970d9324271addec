/* Copyright (C) the limit_sliding authors */

/* Walks over a table in shared memory: pages that no key has used are not allocated. */

#include <sys/mman.h>

#include "core/facts/bans.hpp"
#include "support.hpp"

#define NOW_MS (PRESENT * MINUTE_MS)
#define TABLE_BYTES (size_t{16} << 20)
#define KEYS 20

static const PenaltyRule kRule = {DAY_MS, DAY_MS, DAY_MS, 1};

static void *shared_memory() {
    void *memory
        = mmap(nullptr, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static size_t pages_in_memory(void *memory) {
    static unsigned char pages[TABLE_BYTES / 4096]; /* pages may be larger */
    size_t n = 0;

    memset(pages, 0, sizeof(pages));
    assert_int_equal(mincore(memory, TABLE_BYTES, pages), 0);

    for (unsigned char page : pages) {
        n += page & 1;
    }

    return n;
}

/* Asserts that since then only pages of marks have come into memory, and a number of others. */
static void check_pages(void *memory, size_t pages, size_t others) {
    const size_t marks = PageMarks::bytes_for(TABLE_BYTES) / PageMarks::kPageBytes + 1;

    assert_in_range(pages_in_memory(memory), pages, pages + marks + others);
}

/* Asserts that each walk reads only pages in memory, and finds all keys. */
static void check_zone(const Policy &policy) {
    const uint64_t later_ms = NOW_MS + (uint64_t{1} << (policy.has_rings() ? 40 : 34));
    void *memory = shared_memory();
    Zone *zone = Zone::init(memory, TABLE_BYTES, policy, 0, test_secret);

    for (uint64_t key = 1; key <= KEYS; key++) {
        assert_true(admits(zone, &policy, key, 5, 1, NOW_MS));
    }

    const size_t pages = pages_in_memory(memory);
    uint64_t withdrawn = 0;

    assert_int_equal(zone->keys(policy, NOW_MS, 5, KEYS, UINT64_MAX), KEYS);

    for (uint64_t now_ms : {uint64_t{NOW_MS}, later_ms, later_ms}) {
        for (uint64_t part = 0; part < 16; part++) {
            withdrawn += zone->sweep(policy, now_ms, 5, part, TABLE_BYTES / 16);
        }

        assert_int_equal(withdrawn, now_ms == later_ms ? KEYS : 0);
    }

    /* a line of rings may reach over the end of a page */
    check_pages(memory, pages, policy.has_rings() ? KEYS : 0);
    munmap(memory, TABLE_BYTES);
}

static void test_zones(void **state) {
    (void)state;

    check_zone(evicting(MINUTE_MS));
    check_zone(log_of(MINUTE_MS));
    check_zone(parts_of(SECOND_MS, 60));
}

static void test_debts(void **state) {
    const DebtClock clock = {NOW_MS, PRESENT * kDebtParts, 10, binary_digits(uint64_t{MINUTE_MS})};
    void *memory = shared_memory();
    Debts *debts = Debts::init(memory, TABLE_BYTES);

    (void)state;

    for (uint64_t key = 1; key <= KEYS; key++) {
        assert_int_equal(debts->add(key * 0x9e3779b97f4a7c15, 7, 0, false, clock), 0);
    }

    const size_t pages = pages_in_memory(memory);

    assert_int_equal(debts->sweep(NOW_MS, 0, TABLE_BYTES), 0);
    assert_int_equal(debts->sweep(NOW_MS + 200000 * MINUTE_MS, 0, TABLE_BYTES), KEYS);
    assert_int_equal(debts->sweep(NOW_MS + 200000 * MINUTE_MS, 0, TABLE_BYTES), 0);
    check_pages(memory, pages, 0);
    munmap(memory, TABLE_BYTES);
}

static void test_bans(void **state) {
    void *memory = shared_memory();
    Bans *bans = Bans::init(memory, TABLE_BYTES, nullptr);

    (void)state;

    for (uint64_t key = 1; key <= KEYS; key++) {
        assert_true(bans->set(key * 0x9e3779b97f4a7c15, {DAY_MS, 0}, kRule, NOW_MS));
    }

    const size_t pages = pages_in_memory(memory);

    assert_int_equal(bans->banned(NOW_MS, UINT64_MAX), KEYS);
    check_pages(memory, pages, 0);
    munmap(memory, TABLE_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zones),
        cmocka_unit_test(test_debts),
        cmocka_unit_test(test_bans),
    };

    return cmocka_run_group_tests_name("page marks", tests, NULL, NULL);
}
