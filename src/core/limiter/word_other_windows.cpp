/* Copyright (C) the limit_sliding authors */

#include "core/rules/algorithm.hpp"
#include "core/table/other_windows.hpp"
#include "core/table/zone.hpp"

namespace limit_sliding {

/* One of the two windows may be of the calendar, so the algorithm may be another one. */
template <class Visit>
auto WordOtherWindows::visit(const Visit &visit_slots) const {
    const Policy &own = *claim_.policy;
    const Policy shared = own.salt == 0 ? own : claim_.zone->shared_policy(own);
    return with_algorithm(shared, time_ms_, claim_.limit, [&](const auto &algorithm) {
        return visit_slots(OtherWindows(WordView{algorithm, &claim_, time_ms_}, algorithm.epoch(),
                                        KeyEpochs(own, time_ms_)));
    });
}

bool WordOtherWindows::is_recent(uint64_t tag) const {
    return visit([&](const auto &slots) { return slots.is_recent(tag); });
}

uint64_t WordOtherWindows::used(const Copy &copy) const {
    return visit([&](const auto &slots) { return slots.used(copy); });
}

uint64_t WordOtherWindows::expires_ms(const Copy &copy) const {
    return visit([&](const auto &slots) { return slots.expires_ms(copy); });
}

} // namespace limit_sliding
