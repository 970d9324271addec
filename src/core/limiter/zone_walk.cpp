/* Copyright (C) the limit_sliding authors */

/* Walks over the slots of a zone, for all keys. */

#include <algorithm>

#include "core/rings/ring_step.hpp"
#include "core/rules/word_steps.hpp"
#include "core/table/table.hpp"
#include "core/table/zone.hpp"

namespace limit_sliding {

namespace {

/* Passes `lines` lines from the line `first` on, but no more than `lines_max` lines in used pages.
 * Calls visit(slot, table, step) for each slot in them that was ever used.  The slots of a line
 * fill in order, so an unused slot ends its line.  Returns the number of passed lines. */
template <class Visit>
uint64_t walk(Zone *zone, const Policy &policy, uint64_t now_ms, uint64_t limit, uint64_t first,
              uint64_t lines, uint64_t lines_max, const Visit &visit) {
    uint64_t passed = 0;
    uint64_t time_ms = now_ms + zone->offset_ms;

    auto walk_slots = [&](const auto &slots, uint64_t epoch, const auto &step) {
        /* the hash of any key will do */
        Table table(slots, &zone->counts, 0, TagEpoch{epoch, 0});

        for (; passed < lines && lines_max != 0; passed++) {
            const uint64_t i = first + passed;
            if (!zone->is_used(slots.slot(i, 0))) { continue; }

            lines_max--;

            for (unsigned j = 0; j < Line::kSlots && slots.slot(i, j).tag.load() != 0; j++) {
                visit(slots.slot(i, j), table, step);
            }
        }
    };

    if (policy.has_rings()) {
        RingSlots slots(zone);
        TickClock clock(policy, time_ms);

        walk_slots(slots, clock.epoch(), RingStep(zone, policy, clock));
        return passed;
    }

    Claim claim = {};

    claim.zone = zone;
    claim.policy = &policy;
    claim.limit = limit;

    with_algorithm(policy, time_ms, limit, [&](const auto &algorithm) {
        walk_slots(WordSlots(zone), algorithm.epoch(), WordView{algorithm, &claim, time_ms});
    });
    return passed;
}

/* The lines that Zone::keys() may pass for each line that it may read.  The others are in unused
 * pages, so the few keys of a large zone are counted exactly. */
constexpr uint64_t kReach = 16;

} // namespace

uint64_t Zone::keys(const Policy &policy, uint64_t now_ms, uint64_t limit, uint64_t used,
                    uint64_t bytes, KeyShares *shares) const {
    uint64_t all = 2 * pairs.all();
    uint64_t lines = std::min(all, bytes / (Line::kSlots * slot_bytes));
    uint64_t seen = 0;
    uint64_t live = 0;
    KeyShares found = {};

    /* a share takes longer than a look at a state */
    const uint64_t sample = shares != nullptr ? 1 + bytes / 64 : 0;

    const uint64_t passed
        = walk(const_cast<Zone *>(this), policy, now_ms, limit, 0, std::min(all, kReach * lines),
               lines, [&](Slot &slot, const auto &table, const auto &step) {
                   seen++;
                   const Copy copy = Copy::read(slot);
                   if (!table.is_live(copy, step)) { return; }

                   live++;
                   if (live <= sample && !tag::has_key_window(copy.tag)) {
                       const double band = step.share(copy, limit) * (KeyShares::kBands - 1);
                       found.keys[std::min(static_cast<size_t>(band), KeyShares::kBands - 1)]++;
                   }
               });

    const uint64_t keys = passed == all ? live : seen == 0 ? used : used * live / seen;

    for (size_t i = 0; shares != nullptr && i < KeyShares::kBands; i++) {
        shares->keys[i] = live == 0 ? 0 : found.keys[i] * keys / std::min(live, sample);
    }

    return keys;
}

uint64_t Zone::sweep(const Policy &policy, uint64_t now_ms, uint64_t limit, uint64_t part,
                     uint64_t bytes) {
    uint64_t withdrawn = 0;
    uint64_t all = 2 * pairs.all();
    uint64_t lines = std::clamp<uint64_t>(bytes / (Line::kSlots * slot_bytes), 1, all);
    uint64_t first = part % ((all + lines - 1) / lines) * lines;

    walk(this, policy, now_ms, limit, first, std::min(lines, all - first), lines,
         [&](Slot &slot, const auto &table, const auto &step) {
             withdrawn += table.withdraw_old(slot, step);
         });

    return withdrawn;
}

} // namespace limit_sliding
