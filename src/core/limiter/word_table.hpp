/* Copyright (C) the limit_sliding authors */

/* The table and the time of a claim with a state of one word. */

#pragma once

#include <cstdint>

#include "core/policy/claim.hpp"
#include "core/policy/tag_epoch.hpp"
#include "core/rules/word_steps.hpp"
#include "core/table/table.hpp"
#include "core/table/zone.hpp"
#include "core/table/zone_slots.hpp"

namespace limit_sliding {

/* Converts the caller's time to the zone's. */
inline uint64_t time_of(const Claim &claim, uint64_t now_ms) {
    return now_ms + claim.zone->offset_ms;
}

[[gnu::always_inline]] inline Table<WordSlots> table_of(const Claim &claim, const TagEpoch &epoch) {
    return Table<WordSlots>(WordSlots(claim.zone), claim.zone->pairs, counts_of(claim), claim.hash,
                            epoch);
}

/* Returns the table for keys with the zone's window. */
template <class Algorithm>
[[gnu::always_inline]] inline Table<WordSlots> shared_table_of(const Claim &claim,
                                                               const Algorithm &algorithm) {
    return table_of(claim, TagEpoch{algorithm.epoch(), 0});
}

inline bool has_key_window(const Claim &claim) { return claim.policy->salt != 0; }

[[gnu::noinline]] inline TagEpoch key_epoch(const Claim &claim, uint64_t now_ms) {
    return KeyEpochs(*claim.policy, time_of(claim, now_ms)).present(claim.policy->window_ms);
}

/* Returns the table for any key. */
template <class Algorithm>
[[gnu::always_inline]] inline Table<WordSlots> table_of(const Claim &claim,
                                                        const Algorithm &algorithm,
                                                        uint64_t now_ms) {
    return table_of(claim, has_key_window(claim) ? key_epoch(claim, now_ms)
                                                 : TagEpoch{algorithm.epoch(), 0});
}

template <class Algorithm>
[[gnu::always_inline]] inline WordStep<Algorithm> step_of(const Claim &claim,
                                                          const Algorithm &algorithm, uint64_t cost,
                                                          uint64_t now_ms) {
    return {algorithm, cost, claim, time_of(claim, now_ms)};
}

} // namespace limit_sliding
