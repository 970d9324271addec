/* Copyright (C) the limit_sliding authors */

/* Histories of a key that may owe: admissions, charges, refunds and steps of time, under limits
 * that change, beside the model of t/unit, for policies and limits of all sizes. */

#include "input.hpp"
#include "settle_history.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    constexpr unsigned kSteps = 200;
    fuzz::Input input(data, size);
    const size_t kind = input.below(std::size(settle_kinds));
    const uint64_t limit = settle_limits[input.below(std::size(settle_limits))];
    const uint64_t window_ms = settle_windows_ms[input.below(std::size(settle_windows_ms))];
    const auto limits = static_cast<limits_t>(input.below(3));
    const Policy policy = policy_of(kind, window_ms, limit);

    if (!is_subject(policy, limit)) { return 0; }

    subject_t subject(policy, limit, limits, input.below(65536));
    for (unsigned i = 0; i < kSteps && !input.empty(); i++) {
        /* the next bytes are what the subject draws */
        subject.random = input.below(65536);
        subject.step();
    }

    return 0;
}
