/* Copyright (C) the limit_sliding authors */

#include "support.hpp"

static uint64_t hash(const void *key, size_t bytes) {
    static uint8_t memory[PAIR_BYTES] __attribute__((aligned(kZoneAlign)));

    return init_zone(memory, sizeof(memory), test_secret)->hash({(const char *)key, bytes});
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* No two alike: of a million 64-bit hashes that is one chance in 2^25. */
static void assert_all_differ(uint64_t *hashes, size_t n) {
    qsort(hashes, n, sizeof(*hashes), compare);

    for (size_t i = 1; i < n; i++) {
        assert_int_not_equal(hashes[i - 1], hashes[i]);
    }
}

/* SipHash-1-3 of the bytes 0, 1, 2 ... n - 1 under the key 0, 1, 2 ... 15. */
static void test_siphash_vectors(void **state) {
    static const uint64_t vectors[] = {
        0xabac0158050fc4dc, 0xc9f49bf37d57ca93, 0x82cb9b024dc7d44d, 0x8bf80ab8e7ddf7fb,
        0xcf75576088d38328, 0xdef9d52f49533b67, 0xc50d2b50c59f22a7, 0xd3927d989bb11140,
        0x369095118d299a8e, 0x25a48eb36c063de4, 0x79de85ee92ff097f, 0x70c118c1f94dc352,
        0x78a384b157b4d9a2, 0x306f760c1229ffa7, 0x605aa111c0f95d34, 0xd320d86d2a519956,
        0xcc4fdd1a7d908b66, 0x9cf2689063dbd80c,
    };
    uint8_t bytes[64];

    (void)state;

    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)i;
    }

    for (size_t n = 0; n < LENGTH(vectors); n++) {
        assert_int_equal(hash(bytes, n), vectors[n]);
    }

    assert_int_equal(hash(bytes, 63), 0x9d199062b7bbb3a8);
}

/* Of each length, and with each bit of it turned. */
static void test_every_bit_counts(void **state) {
    static uint64_t hashes[101 * 401];
    size_t n = 0;

    (void)state;

    for (size_t bytes = 0; bytes <= 100; bytes++) {
        uint8_t *key = static_cast<uint8_t *>(calloc(1, bytes + 1));

        hashes[n++] = hash(key, bytes);

        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            key[bit / 8] ^= (uint8_t)(1u << bit % 8);
            hashes[n++] = hash(key, bytes);
            key[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }

        free(key);
    }

    assert_int_equal(n, 101 + 8 * 5050);
    assert_all_differ(hashes, n);
}

static void test_no_byte_past_the_key_counts(void **state) {
    (void)state;

    for (size_t bytes = 0; bytes <= 100; bytes++) {
        uint8_t exact[101], longer[101];
        uint8_t *copy = static_cast<uint8_t *>(malloc(bytes + 1));

        memset(exact, 0x5a, sizeof(exact));
        memset(longer, 0x5a, sizeof(longer));
        longer[bytes] = 0xff;
        assert_int_equal(hash(exact, bytes), hash(longer, bytes));

        /* at an odd address, and where ASan sees a byte too many */

        memset(copy, 0x5a, bytes + 1);
        assert_int_equal(hash(copy + 1, bytes), hash(exact, bytes));
        free(copy);
    }

    assert_int_equal(hash(NULL, 0), hash("", 0));
}

static void test_long_keys(void **state) {
    uint8_t *key = static_cast<uint8_t *>(calloc(1, 65536));
    uint64_t hashes[4];

    (void)state;

    hashes[0] = hash(key, 65535);
    hashes[1] = hash(key, 65536);
    hashes[2] = hash(key, 65535 - 256);
    key[65534] = 1;
    hashes[3] = hash(key, 65535);

    assert_all_differ(hashes, 4);
    free(key);
}

static void test_every_bit_of_the_secret_counts(void **state) {
    static uint8_t memory[PAIR_BYTES] __attribute__((aligned(kZoneAlign)));
    uint64_t hashes[8 * kSecretBytes];

    (void)state;

    for (size_t bit = 0; bit < LENGTH(hashes); bit++) {
        uint8_t secret[kSecretBytes] = {0};
        Zone *zone;

        secret[bit / 8] = (uint8_t)(1u << bit % 8);
        memset(memory, 0, sizeof(memory));
        zone = init_zone(memory, sizeof(memory), secret);
        hashes[bit] = zone->hash({(const char *)"key", 3});
    }

    assert_all_differ(hashes, LENGTH(hashes));
}

/* Whatever the hash, 0 and all ones among them, the key has its own count. */
static void test_odd_hashes_are_keys(void **state) {
    static const uint64_t hashes[]
        = {0,          2,          UINT64_MAX, 1ull << 63, 1ull << 44,
           1ull << 31, 1ull << 32, 3ull << 31, 0xfffffffe, (1ull << 44) - 1};
    Policy policy = evicting(MINUTE_MS);

    (void)state;

    for (size_t i = 0; i < LENGTH(hashes); i++) {
        Zone *zone = make_zone(MEGABYTE_ZONE_BYTES);
        Claim claim = claim_of(zone, &policy, 0, 2, 1);

        claim.hash = hashes[i];

        for (unsigned n = 0; n < 3; n++) {
            limit_sliding::acquire(&claim, 1, MINUTE_MS);
            assert_int_equal(claim.outcome, n < 2 ? Outcome::kAdmitted : Outcome::kRejected);
        }

        free(zone);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siphash_vectors),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_no_byte_past_the_key_counts),
        cmocka_unit_test(test_long_keys),
        cmocka_unit_test(test_every_bit_of_the_secret_counts),
        cmocka_unit_test(test_odd_hashes_are_keys),
    };

    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
