/* Copyright (C) the limit_sliding authors */

#include "core/rules/word_steps.hpp"
#include "core/table/other_window_slots.hpp"
#include "core/table/zone.hpp"

namespace limit_sliding {

/* One window may be a calendar's, so the zone's algorithm may differ from the claim's. */
template <class Visit>
auto WordOtherWindowSlots::visit(const Visit &visit_slots) const {
    const Policy &own = *claim_.policy;
    const Policy shared = own.salt == 0 ? own : claim_.zone->shared_policy(own);
    return with_algorithm(shared, time_ms_, claim_.limit, [&](const auto &algorithm) {
        return visit_slots(OtherWindowSlots(WordView{algorithm, &claim_, time_ms_},
                                            algorithm.epoch(), KeyEpochs(own, time_ms_)));
    });
}

bool WordOtherWindowSlots::is_recent(uint64_t tag) const {
    return visit([&](const auto &slots) { return slots.is_recent(tag); });
}

uint64_t WordOtherWindowSlots::used(const Copy &copy) const {
    return visit([&](const auto &slots) { return slots.used(copy); });
}

uint64_t WordOtherWindowSlots::expires_ms(const Copy &copy) const {
    return visit([&](const auto &slots) { return slots.expires_ms(copy); });
}

} // namespace limit_sliding
