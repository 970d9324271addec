/* Copyright (C) the limit_sliding authors */

/*
 * Whoever loses every race, as others change what it has read after each of its
 * accesses, gives up in the end: no request goes on for ever, whatever is in memory.
 */

#include "holds.hpp"
#include "step.hpp"

#include "core/facts/bans.hpp"
#include "core/rules/in_flight.hpp"
#include "core/table/zone.hpp"

#define KEY 1
#define LIMIT 20
#define NOW_MS (PRESENT * MINUTE_MS + 1)
#define BYTES (kZoneAlign + 16 * 1024)

static struct {
    Zone *zone;
    Policy policy;
    Slot *slot; /* of the key */
} scene;

/* One of bans. */
struct Place {
    uint64_t tag;
    uint64_t state;
};

static Claim claim_now(uint64_t cost) {
    return claim_of(scene.zone, &scene.policy, KEY, LIMIT, (uint32_t)cost);
}

/* Finds the slot of the only key. */
static void find_slot() {
    scene.slot = nullptr;

    for (uint64_t i = 0; i < stats_of(scene.zone).slots; i++) {
        Slot *slot = scene.policy.has_rings() ? &RingSlots(scene.zone).slot(i / 4, i % 4)
                                              : &WordSlots(scene.zone).slot(i / 4, i % 4);

        if (slot->tag != 0) { scene.slot = slot; }
    }
}

/* A zone in which the key has used something, if any. */
static void begin(const Policy &policy, uint32_t used) {
    scene.policy = policy;
    scene.zone = Zone::init(step_begin(BYTES), BYTES, policy, 0, test_secret);

    if (used != 0) { assert_true(admits(scene.zone, &scene.policy, KEY, LIMIT, used, NOW_MS)); }

    find_slot();
}

/* Makes it another state of the same counts. */
static void change_state(void) { scene.slot->state.fetch_xor(1ull << 44); }

/* Others take the slot, of which none has the generation of the state. */
static void change_tag(void) {
    uint64_t tag = scene.slot->tag;
    uint64_t next = (tag + 1) % 4;

    if (next == scene.slot->state >> Copy::kStateBits) { next = (next + 1) % 4; }

    scene.slot->tag = (tag & ~3ull) | next;
}

template <class Work>
static void lose(void (*change)(void), const Work &work) {
    step.after = change;
    STEP_THROUGH(work());
    step.after = NULL;
}

static void test_words(void **state) {
    Claim claim;

    (void)state;

    begin(evicting(MINUTE_MS), 3);
    claim = claim_now(1);
    lose(change_state, [&] { limit_sliding::acquire(&claim, 1, NOW_MS); });
    assert_int_equal(claim.outcome, Outcome::kRefused);
    assert_int_equal(stats_of(scene.zone).refused, 1);
    assert_int_equal(claim.retry_after_ms(NOW_MS), 1);

    lose(change_state, [&] { assert_int_equal(charge(claim_now(1), 7, NOW_MS), 7); });
    lose(change_state, [&] { give_back(claim_now(1), 1, NOW_MS); });
    assert_int_equal(remaining_of(scene.zone, &scene.policy, KEY, LIMIT, NOW_MS), LIMIT - 3);
    step_end();
}

/* A slot whose key can never be told has none. */
static void test_tags(void **state) {
    (void)state;

    begin(evicting(MINUTE_MS), 3);
    change_tag();
    lose(change_tag, [&] {
        assert_int_equal(remaining_of(scene.zone, &scene.policy, KEY, LIMIT, NOW_MS), LIMIT);
    });
    step_end();
}

/* ---- charges ---- */

/* Whoever looks at the key sees room, and whoever consumes sees none. */
static struct {
    uint64_t states[2];
    unsigned reads; /* of the state */
} room;

static void alternate(const void *word) {
    if (word != &scene.slot->state) { return; }

    limit_sliding::after_access = nullptr;
    scene.slot->state = room.states[++room.reads % 2];
    limit_sliding::after_access = alternate;
}

static void test_charges(void **) {
    begin(evicting(MINUTE_MS), 3);
    room = {};
    room.states[0] = scene.slot->state;
    assert_true(admits(scene.zone, &scene.policy, KEY, LIMIT, LIMIT - 3, NOW_MS));
    room.states[1] = scene.slot->state;
    scene.slot->state = room.states[0];

    limit_sliding::after_access = alternate;
    assert_int_equal(charge(claim_now(1), 7, NOW_MS), 7);
    limit_sliding::after_access = nullptr;

    assert_int_equal(room.reads, 2 * kAttempts);
    assert_int_equal(remaining_of(scene.zone, &scene.policy, KEY, LIMIT, NOW_MS), LIMIT - 3);
    step_end();
}

/* ---- units in flight ---- */

static struct {
    Ledger *ledger;
    Holdings workers[2];
    Hold hold; /* of the first worker */
} flight;

static Ledger::Word word_of_hold() { return {flight.ledger->entry(flight.hold.entry).word.load()}; }

/* A zone in which the key has one unit in flight. */
static void begin_flight() {
    auto *memory = static_cast<uint8_t *>(step_begin(BYTES + LEDGER_BYTES));

    scene.policy = holding;
    scene.zone = Zone::init(memory, BYTES, holding, 0, test_secret);
    flight.ledger = Ledger::init(memory + BYTES, LEDGER_BYTES);

    for (uint32_t seat = 0; seat < 2; seat++) {
        flight.workers[seat] = holdings_of(scene.zone, flight.ledger, seat);
    }

    assert_true(takes(&flight.workers[0], scene.zone, &flight.hold, KEY, LIMIT));
    find_slot();
}

/* Makes the mark that of an entry beyond the ledger. */
static void change_mark() { scene.slot->state.fetch_add(1ull << 22); }

static void change_units_of_entry() {
    flight.ledger->entry(flight.hold.entry).word.fetch_add(1ull << Ledger::Word::kNumberBits);
}

/* A request that ends is over, though its unit stays. */
static void test_release(void **) {
    begin_flight();
    lose(change_mark, [&] { flight.hold.release(); });
    assert_false(flight.hold.is_held());
    assert_int_equal(word_of_hold().status(), Ledger::kFree);
    assert_int_equal(held_of(scene.zone, KEY), 1);
    step_end();
}

/* The units of a dead worker stay if its entry, or the slot of its key, is never the same. */
static void test_recovery(void **) {
    for (auto change : {change_units_of_entry, change_tag}) {
        begin_flight();
        lose(change, [&] { flight.workers[1].recover(0); });
        assert_int_equal(word_of_hold().status(),
                         change == change_tag ? Ledger::kFree : Ledger::kHeld);
        assert_int_equal(InFlight::held(scene.slot->state & Copy::kStateMask), 1);
        assert_false(flight.ledger->is_used(0));
        step_end();
    }
}

/* ---- bans ---- */

static Place *place;

static void change_place(void) { place->tag++; }

static void test_bans(void **state) {
    static const PenaltyRule once = {DAY_MS, DAY_MS, MINUTE_MS, 1};
    Bans *bans;

    (void)state;

    bans = Bans::init(step_begin(4096), 64 + 64, test_secret);
    place = reinterpret_cast<Place *>(reinterpret_cast<char *>(bans) + 64);
    assert_int_equal(bans->reject(1, once, DAY_MS).left_ms, DAY_MS);
    lose(change_place, [&] { assert_int_equal(bans->reject(2, once, DAY_MS).left_ms, 0); });
    lose(change_place, [&] { assert_false(bans->lift(1, DAY_MS)); });
    lose(change_place, [&] { assert_int_equal(bans->find(1, DAY_MS).left_ms, 0); });
    assert_int_equal(bans->banned(DAY_MS, UINT64_MAX), 1);
    step_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),    cmocka_unit_test(test_tags),
        cmocka_unit_test(test_charges),  cmocka_unit_test(test_release),
        cmocka_unit_test(test_recovery), cmocka_unit_test(test_bans),
    };

    return cmocka_run_group_tests_name("attempts", tests, NULL, NULL);
}
