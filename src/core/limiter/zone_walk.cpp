/* Copyright (C) the limit_sliding authors */

/* Walks over the slots of a zone, for all keys. */

#include <algorithm>

#include "core/rings/ring_step.hpp"
#include "core/rules/word_steps.hpp"
#include "core/table/table.hpp"
#include "core/table/zone.hpp"

namespace limit_sliding {

namespace {

/* Calls visit(slot, table, step) for each slot of some lines that was ever used.  The slots of a
 * line fill in order, so an unused slot ends its line. */
template <class Visit>
void walk(Zone *zone, const Policy &policy, uint64_t now_ms, uint64_t limit, uint64_t first,
          uint64_t lines, const Visit &visit) {
    uint64_t time_ms = now_ms + zone->offset_ms;

    auto walk_slots = [&](const auto &slots, uint64_t epoch, const auto &step) {
        /* the hash of any key will do */
        Table table(slots, zone->pairs, &zone->counts, 0, TagEpoch{epoch, 0});

        for (uint64_t i = first; i < first + lines; i++) {
            if (!zone->is_used(slots.slot(i, 0))) { continue; }

            for (unsigned j = 0; j < Line::kSlots && slots.slot(i, j).tag.load() != 0; j++) {
                visit(slots.slot(i, j), table, step);
            }
        }
    };

    if (policy.has_rings()) {
        RingSlots slots(zone);
        TickClock clock(policy, time_ms);

        walk_slots(slots, clock.epoch(), RingStep(zone, policy, clock));
        return;
    }

    Claim claim = {};

    claim.zone = zone;
    claim.policy = &policy;
    claim.limit = limit;

    with_algorithm(policy, time_ms, limit, [&](const auto &algorithm) {
        walk_slots(WordSlots(zone), algorithm.epoch(), WordView{algorithm, &claim, time_ms});
    });
}

} // namespace

uint64_t Zone::keys(const Policy &policy, uint64_t now_ms, uint64_t limit, uint64_t used,
                    uint64_t bytes) const {
    uint64_t all = 2 * pairs.all();
    uint64_t lines = std::min(all, bytes / (Line::kSlots * slot_bytes));
    uint64_t seen = 0;
    uint64_t live = 0;

    walk(const_cast<Zone *>(this), policy, now_ms, limit, 0, lines,
         [&](Slot &slot, const auto &table, const auto &step) {
             seen++;
             live += table.is_live(slot, step);
         });

    if (lines == all) { return live; }
    return seen == 0 ? used : used * live / seen;
}

uint64_t Zone::sweep(const Policy &policy, uint64_t now_ms, uint64_t limit, uint64_t part,
                     uint64_t bytes) {
    uint64_t withdrawn = 0;
    uint64_t all = 2 * pairs.all();
    uint64_t lines = std::clamp<uint64_t>(bytes / (Line::kSlots * slot_bytes), 1, all);
    uint64_t first = part % ((all + lines - 1) / lines) * lines;

    walk(this, policy, now_ms, limit, first, std::min(lines, all - first),
         [&](Slot &slot, const auto &table, const auto &step) {
             withdrawn += table.withdraw_old(slot, step);
         });

    return withdrawn;
}

} // namespace limit_sliding
