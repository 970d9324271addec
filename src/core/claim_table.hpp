/* Copyright (C) the limit_sliding authors */

/* The tables of claims whose states are words, and their time. */

#pragma once

#include <cstdint>

#include "core/algorithm.hpp"
#include "core/claim.hpp"
#include "core/epoch.hpp"
#include "core/table.hpp"
#include "core/zone.hpp"
#include "core/zone_slots.hpp"

namespace limit_sliding {

/* Returns the caller's time as that of the claim's zone. */
inline uint64_t time_of(const Claim &claim, uint64_t now_ms) {
    return now_ms + claim.zone->offset_ms;
}

[[gnu::always_inline]] inline Table<WordSlots> table_of(const Claim &claim, const Epoch &epoch) {
    return Table<WordSlots>(WordSlots(claim.zone), claim.zone->pairs, counts_of(claim), claim.hash,
                            epoch);
}

/* Returns the table of a key that has the zone's window. */
template <class Algorithm>
[[gnu::always_inline]] inline Table<WordSlots> shared_table_of(const Claim &claim,
                                                               const Algorithm &algorithm) {
    return table_of(claim, Epoch{algorithm.epoch(), 0});
}

inline bool has_own_window(const Claim &claim) { return claim.policy->salt != 0; }

[[gnu::noinline]] inline Epoch own_epoch(const Claim &claim, uint64_t now_ms) {
    return OwnEpochs(*claim.policy, time_of(claim, now_ms)).present(claim.policy->window_ms);
}

/* Returns the table of any key. */
template <class Algorithm>
[[gnu::always_inline]] inline Table<WordSlots> table_of(const Claim &claim,
                                                        const Algorithm &algorithm,
                                                        uint64_t now_ms) {
    return table_of(claim,
                    has_own_window(claim) ? own_epoch(claim, now_ms) : Epoch{algorithm.epoch(), 0});
}

template <class Algorithm>
[[gnu::always_inline]] inline WordStep<Algorithm> step_of(const Claim &claim,
                                                          const Algorithm &algorithm, uint64_t cost,
                                                          uint64_t now_ms) {
    return {algorithm, cost, claim, time_of(claim, now_ms)};
}

} // namespace limit_sliding
