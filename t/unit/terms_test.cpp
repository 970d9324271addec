/* Copyright (C) the limit_sliding authors */

/* What an override makes of a claim. */

#include "core/policy/terms.hpp"

#include "support.hpp"

using namespace limit_sliding;

static Policy a_policy(void) {
    Policy policy = {};
    policy.window_ms = 60000;
    policy.algorithm = Algorithm::kFixed;
    return policy;
}

static Claim a_claim(const Policy *policy) {
    Claim claim = {};
    claim.policy = policy;
    claim.hash = 17;
    claim.limit = 5;
    claim.cost = 2;
    return claim;
}

static void a_number_is_a_limit(void **) {
    const Policy policy = a_policy();
    Claim claim = a_claim(&policy);
    assert_true(apply_override(claim, policy, {9, {}}, nullptr) == Terms::kLimited);
    assert_int_equal(claim.limit, 9);
    assert_true(claim.is_own && claim.is_here() && claim.policy == &policy);
}

static void a_window_is_in_the_room(void **) {
    const Policy policy = a_policy();
    const Override same = {9, {60000, Calendar::kNone}}, other = {9, {5000, Calendar::kNone}};
    Claim claim = a_claim(&policy);
    TermsRoom room = {};
    assert_false(needs_room(same, policy));
    assert_true(needs_room(other, policy));
    assert_true(apply_override(claim, policy, same, nullptr) == Terms::kLimited);
    assert_true(claim.policy == &policy && claim.key_hash() == 17);
    assert_true(apply_override(claim, policy, other, &room) == Terms::kLimited);
    assert_true(claim.policy == &room.policy && room.policy.window_ms == 5000);
    assert_true(claim.hash != 17 && claim.key_hash() == 17);

    /* again, from the policy of the room to the policy of the room */
    assert_true(apply_override(claim, policy, other, &room) == Terms::kLimited);
    assert_int_equal(claim.key_hash(), 17);
}

static void a_blocked_key_is_rejected(void **) {
    const Policy policy = a_policy();
    const Override own = {kLimitBlocked, {}};
    Claim claim = a_claim(&policy);
    TermsRoom room = {};
    assert_true(needs_room(own, policy));
    assert_true(apply_override(claim, policy, own, &room) == Terms::kBlocked);
    assert_true(claim.standing == Standing::kBlocked && claim.outcome == Outcome::kRejected);
    assert_int_equal(claim.limit, 0);
    assert_int_equal(claim.given_verdict().excess, 2000);
    assert_true(claim.given_verdict().retry_after_ms == kNever);
    assert_int_equal(limit_under(own, 5), 5);
    assert_true(standing_of(Terms::kBlocked) == Standing::kBlocked);

    /* a number replaces "0" */
    assert_true(apply_override(claim, policy, {9, {}}, nullptr) == Terms::kLimited);
    assert_true(claim.is_here());
}

static void a_key_without_a_limit_is_admitted(void **) {
    const Policy policy = a_policy();
    const Override own = {kLimitOff, {}};
    Claim claim = a_claim(&policy);
    TermsRoom room = {};
    assert_true(needs_room(own, policy));
    assert_true(apply_override(claim, policy, own, &room) == Terms::kUnlimited);
    assert_true(claim.standing == Standing::kUnlimited && claim.outcome == Outcome::kAdmitted);
    assert_int_equal(claim.limit, 5);
    assert_int_equal(claim.given_verdict().remaining, 5);
    assert_int_equal(limit_under(own, 5), 5);
    assert_true(standing_of(Terms::kUnlimited) == Standing::kUnlimited);
}

static void a_ban_stays(void **) {
    const Policy policy = a_policy();
    const Verdict ban = {5, 0, 1000, 7000, 7000, 0};
    Claim claim = a_claim(&policy);
    TermsRoom room = {};
    claim.decide(Standing::kBanned, Outcome::kRejected, ban);
    for (const uint64_t limit : {uint64_t{9}, kLimitBlocked}) {
        (void)apply_override(claim, policy, {limit, {}}, &room);
        assert_true(claim.standing == Standing::kBanned && claim.verdict == &ban);
    }
    assert_int_equal(claim.limit, 0);
}

static void no_override_is_the_limit(void **) {
    assert_true(terms_of({}) == Terms::kLimited);
    assert_int_equal(limit_under({}, 5), 5);
    assert_int_equal(limit_under({9, {}}, 5), 9);
    assert_true(standing_of(Terms::kLimited) == Standing::kGiven);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_is_a_limit),
        cmocka_unit_test(a_window_is_in_the_room),
        cmocka_unit_test(a_blocked_key_is_rejected),
        cmocka_unit_test(a_key_without_a_limit_is_admitted),
        cmocka_unit_test(a_ban_stays),
        cmocka_unit_test(no_override_is_the_limit),
    };
    return cmocka_run_group_tests_name("terms", tests, NULL, NULL);
}
