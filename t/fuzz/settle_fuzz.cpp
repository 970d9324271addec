/* Copyright (C) the limit_sliding authors */

/* Histories of a key that may owe: admissions, charges, what is given back, steps of time,
 * beside the model of t/unit, for policies and limits of all sizes; between them, looks by
 * another limit, which change nothing. */

#include "input.hpp"
#include "settle_history.hpp"

namespace {

constexpr size_t kMarks = 4;
constexpr unsigned kSteps = 200;

class History {
public:
    History(fuzz::Input &input, const Policy &policy, uint64_t limit)
        : input_(input), subject_(policy, limit, input.below(65536)) {}

    void step() {
        admitted_t &one = admitted_[input_.below(kMarks)];
        redraw();
        round();
        switch (input_.below(8)) {
        case 0:
        case 1:
            charge(&subject_);
            break;
        case 2:
            give_back(&subject_);
            break;
        case 3:
            refund(&subject_, &one);
            break;
        case 4:
            look_by_another();
            break;
        default:
            consume(&subject_, &one);
        }

        check(&subject_);
        redraw();
        tick(&subject_);
        check(&subject_);
    }

private:
    /* Lets what the subject draws depend on the next bytes. */
    void redraw() { subject_.random = input_.below(65536); }

    /* What a large bucket owes is rounded by each step, to a 2^-12th ms or less. */
    void round() {
        const owing_model_t &model = subject_.model;
        if (model.limit > kNarrowMax) {
            subject_.rounded += (model.limit >> 12) + model.policy.window_ms;
        }
    }

    void look_by_another() {
        Claim look = subject_.claim(1 + input_.number() % kLimitMax);
        look.limit = 1 + input_.number() % kLimitMax;
        limit_sliding::acquire(&look, 1, subject_.now_ms);
        const Verdict verdict = look.describe(subject_.now_ms);
        CHECK(verdict.limit == look.limit);
        CHECK(verdict.remaining <= subject_.model.policy.capacity(look.limit));
        CHECK((look.outcome == Outcome::kAdmitted) == (verdict.remaining >= look.cost));
    }

    fuzz::Input &input_;
    subject_t subject_;
    admitted_t admitted_[kMarks] = {};
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const size_t kind = input.below(std::size(settle_kinds));
    const uint64_t limit = settle_limits[input.below(std::size(settle_limits))];
    const uint64_t window_ms = settle_windows_ms[input.below(std::size(settle_windows_ms))];

    /* buckets that lose more than 2^22 requests a ms are less exact */
    const Policy policy = policy_of(kind, window_ms, limit);
    if (limit >> 22 >= window_ms && policy.algorithm != Algorithm::kCounter) { return 0; }

    History history(input, policy, limit);
    for (unsigned i = 0; i < kSteps && !input.empty(); i++) {
        history.step();
    }

    return 0;
}
