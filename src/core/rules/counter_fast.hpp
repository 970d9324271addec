/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/policy/describe_usage.hpp"
#include "core/policy/eviction_rank.hpp"
#include "core/policy/policy.hpp"
#include "core/rules/counter_rule.hpp"

namespace limit_sliding {

/* The counter for limits of one kind, compiled for this kind.  It decides states of the same kind,
 * as nearly all states are; Counter decides the others. */
template <unsigned kKind>
class FastCounter : CounterState {
public:
    FastCounter(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : rule_{policy.window_ms, limit, policy.strict}, now_ms_(now_ms) {}

    uint64_t epoch() const { return epoch_of(now_ms_, rule_.window_ms); }

    /* Returns false if Counter has to decide. */
    [[gnu::always_inline]] bool admit_ready(uint64_t state, uint64_t cost, uint64_t *next,
                                            bool *is_admitted) {
        CounterView &v = seen_;
        if (!see(state, &v)) { return false; }

        uint64_t wanted = rule_.used(kFormat, v) + cost * rule_.window_ms;
        uint64_t full = rule_.limit * rule_.window_ms;

        *is_admitted = cost <= rule_.limit && wanted <= full;

        if (*is_admitted && cost != 0) {
            *next = pack(kKind, v.part, is_near_limit(wanted, full), kFormat.add(v.counts, cost));
        }

        return true;
    }

    /* Returns retry_after_ms of the verdict after admit_ready() has rejected. */
    [[gnu::always_inline]] uint64_t retry_after_ms(uint64_t, uint64_t cost) const {
        return cost > rule_.limit ? kNever
                                  : rule_.wait_ms(kFormat, seen_, rule_.limit - cost, now_ms_);
    }

    /* Describes a state like Counter::describe().  Returns false if Counter has to do so. */
    bool describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        CounterView v;
        if (!see(state, &v)) { return false; }
        uint64_t full = rule_.limit * rule_.window_ms;
        describe_usage(
            {rule_.limit, rule_.limit, rule_.window_ms, rule_.used(kFormat, v), full}, cost,
            [&](uint64_t room) { return wait_ms(v, room); }, verdict);
        return true;
    }

private:
    static constexpr CounterFormat kFormat = kCounterFormats.format[kKind];

    [[gnu::always_inline]] bool see(uint64_t state, CounterView *v) const {
        uint64_t units = now_ms_ * kFormat.parts();
        uint64_t part = units / rule_.window_ms;
        *v = {part, counts_of(state), units - part * rule_.window_ms};
        if (state >> kHeadShift == head(kKind, part)) { return true; }
        uint64_t passed = age(state, part);
        if (state >> (kHeadShift + kPartBits) != kKind + 1 || passed > kOldest) { return false; }
        v->counts = kFormat.age(v->counts, passed);
        return true;
    }

    [[gnu::always_inline]] uint64_t wait_ms(const CounterView &v, uint64_t room) const {
        return rule_.wait_ms(kFormat, v, room, now_ms_);
    }

    CounterRule rule_;
    uint64_t now_ms_;
    CounterView seen_; /* set by admit_ready() */
};

} // namespace limit_sliding
