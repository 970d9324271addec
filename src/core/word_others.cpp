/* Copyright (C) the limit_sliding authors */

#include "core/algorithm.hpp"
#include "core/others.hpp"
#include "core/zone.hpp"

namespace limit_sliding {

/* The zone's window may be one of the calendar and the claim's not, or the reverse,
 * so their algorithms differ. */
template <class Visit>
auto WordOthers::visit(const Visit &visit_others) const {
    const Policy &own = *claim_.policy;
    const Policy shared = own.salt == 0 ? own : claim_.zone->shared_policy(own);

    return with_algorithm(shared, time_ms_, claim_.limit, [&](const auto &algorithm) {
        WordStep step(algorithm, 0, claim_, time_ms_);

        return visit_others(Others(step, algorithm.epoch(), OwnEpochs(own, time_ms_)));
    });
}

bool WordOthers::is_recent(uint64_t tag) const {
    return visit([&](const auto &others) { return others.is_recent(tag); });
}

uint64_t WordOthers::used(const Copy &copy) const {
    return visit([&](const auto &others) { return others.used(copy); });
}

uint64_t WordOthers::expires_ms(const Copy &copy) const {
    return visit([&](const auto &others) { return others.expires_ms(copy); });
}

} // namespace limit_sliding
