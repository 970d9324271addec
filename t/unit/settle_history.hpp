/* Copyright (C) the limit_sliding authors */

/*
 * A random history of a key that may owe, beside the model of settle.hpp, and what must hold
 * after each step.  Who includes this defines CHECK(condition).
 */

#pragma once

#include "settle.hpp"

/* Whose limits the requests have. */
enum class limits_t {
    kOne,      /* that of the zone */
    kOfPlaces, /* those of places beside it, which do not change the pace of a debt */
    kOfKey     /* those of the key, which change now and then */
};

class subject_t {
public:
    subject_t(const Policy &policy, uint64_t limit, limits_t limits, uint64_t seed)
        : random(seed), key_(policy, true), model_(policy), limit_(limit), limits_(limits),
          by_({limit, limits == limits_t::kOfKey}) {
        const uint64_t windows = policy.calendar == Calendar::kNone ? PRESENT : 660;

        now_ms_ = windows * policy.window_ms + random_below(&random, policy.window_ms);
    }

    void run(unsigned steps) {
        for (unsigned i = 0; i < steps; i++) {
            step();
        }
    }

    void step() {
        draw_limit();

        switch (random_below(&random, 8)) {
        case 0:
        case 1:
            charge();
            break;
        case 2:
            give_back();
            break;
        case 3:
            refund();
            break;
        default:
            consume();
        }

        check();
        tick();
        check();
    }

    uint64_t random;

private:
    const Policy &policy() const { return key_.policy(); }

    void draw_limit() {
        if (limits_ == limits_t::kOne || random_below(&random, 3) != 0) { return; }

        const uint64_t most = std::min(policy().limit_max(), 4 * limit_);

        by_.limit = random_below(&random, 2) == 0 ? limit_ : random_scale(&random, 1, most);
    }

    uint64_t random_cost() {
        switch (random_below(&random, 8)) {
        case 0:
            return 1;
        case 1:
            return limit_ + random_below(&random, 2);
        case 2:
        case 3:
            return random_below(&random, limit_ / 10 + 1) + 1;
        case 4:
            return random_scale(&random, 1, 1100) * limit_;
        case 5:
            return random_next(&random) >> (11 + random_below(&random, 52)) | 1;
        default:
            return random_below(&random, 4 * limit_) + 1;
        }
    }

    void consume() {
        const uint64_t cost = random_below(&random, std::min(model_.capacity(by_), kCostMax)) + 1;
        const bool fits = model_.fits(by_, cost, now_ms_);
        const Claim claim = key_.acquire(by_, cost, now_ms_);

        CHECK((claim.outcome == Outcome::kAdmitted) == fits);

        if (fits) { admitted_ = {claim, model_.admit(by_, cost, now_ms_), now_ms_, cost}; }
    }

    void charge() {
        const uint64_t cost = random_cost();
        const uint64_t lost = limit_sliding::charge(key_.claim(by_, 1), cost, now_ms_);

        CHECK(lost == model_.charge(by_, cost, now_ms_));
    }

    void refund() {
        const uint64_t cost = random_below(&random, admitted_.left + 1);

        admitted_.left -= cost;
        if (cost == 0) { return; }

        /* the key may have another limit by now */
        admitted_.claim.limit = admitted_.model.limit = by_.limit;
        limit_sliding::refund(admitted_.claim, cost, admitted_.at_ms, now_ms_);
        model_.refund(by_, admitted_.model, cost, admitted_.at_ms, now_ms_);
        has_refunds_ = true;
    }

    void give_back() {
        const uint64_t cost = random_cost();

        limit_sliding::give_back(key_.claim(by_, 1), cost, now_ms_);
        model_.give_back(by_, cost, now_ms_);
        has_refunds_ = true;
    }

    void tick() {
        const uint64_t w = policy().window_ms;
        const Verdict verdict = key_.look(by_, 1, now_ms_).describe(now_ms_);

        switch (random_below(&random, 8)) {
        case 0:
        case 1:
            break;
        case 2:
            now_ms_ += verdict.retry_after_ms;
            break;
        case 3:
            now_ms_ += verdict.retry_after_ms - (verdict.retry_after_ms > 0);
            break;
        case 4:
            now_ms_ += random_below(&random, 40) * w;
            break;
        case 5:
            now_ms_ += w - now_ms_ % w;
            break;
        default:
            now_ms_ += random_below(&random, 2 * w);
        }
    }

    void check() {
        model_.look(by_, now_ms_);
        CHECK(key_.used(by_, now_ms_) == model_.used(by_, now_ms_));
        check_cost(1);
        check_cost(0);
        check_cost(std::min(model_.capacity(by_), kCostMax));
        check_cost(random_below(&random, std::min(model_.capacity(by_) + 2, kCostMax)));
    }

    /* The verdict is true, and holds. */
    void check_cost(uint64_t cost) {
        const Claim look = key_.look(by_, cost, now_ms_);
        const Verdict verdict = look.describe(now_ms_);
        const uint64_t retry_ms = verdict.retry_after_ms;
        const bool fits = model_.fits(by_, cost, now_ms_);

        CHECK((look.outcome == Outcome::kAdmitted) == fits);
        CHECK(verdict.remaining == model_.remaining(by_, now_ms_));

        if (fits) { return; }

        CHECK(retry_ms == look.retry_after_ms(now_ms_));

        if (cost > model_.capacity(by_)) {
            CHECK(retry_ms == kNever);
            return;
        }

        CHECK(retry_ms > 0 && retry_ms < kNever);
        CHECK(model_.fits(by_, cost, now_ms_ + retry_ms));

        /* refunds of a log end somewhat earlier than their units do, and a bucket rounds units that
         * a higher limit has admitted to whole ms */
        CHECK(!model_.fits(by_, cost, now_ms_ + retry_ms - 1)
              || (policy().has_rings() && has_refunds_)
              || (is_bucket(policy()) && limits_ != limits_t::kOne));

        if (verdict.reset_ms != 0) {
            CHECK(model_.remaining(by_, now_ms_ + verdict.reset_ms) > verdict.remaining);
        }
    }

    struct admitted_t {
        Claim claim;
        Claim model;
        uint64_t at_ms;
        uint64_t left;
    };

    settle_key_t key_;
    settle_model_t model_;
    uint64_t limit_; /* of the zone */
    limits_t limits_;
    settle_limit_t by_;
    uint64_t now_ms_;
    admitted_t admitted_ = {};
    bool has_refunds_ = false;
};
