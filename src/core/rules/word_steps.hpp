/* Copyright (C) the limit_sliding authors */

/*
 * The algorithms with a state of one word: counters, fixed windows and buckets.  Each is a pure
 * function of a state, a time, a limit and a cost, and returns the next state and a verdict.  This
 * header selects the algorithm of a policy, and connects it to the table by steps (table.hpp).
 */

#pragma once

#include <cstdint>

#include "core/policy/claim.hpp"
#include "core/policy/policy.hpp"
#include "core/policy/tag_epoch.hpp"
#include "core/rules/bucket.hpp"
#include "core/rules/counter.hpp"
#include "core/rules/fixed_window.hpp"
#include "core/rules/in_flight.hpp"
#include "core/table/other_window_slots.hpp"
#include "core/table/slot.hpp"
#include "core/table/table.hpp"
#include "core/table/zone.hpp"

namespace limit_sliding {

/* Converts the caller's time to the zone's. */
inline uint64_t time_of(const Claim &claim, uint64_t now_ms) {
    return now_ms + claim.zone->offset_ms;
}

/* Calls visit() with the algorithm of a policy with states of one word, at a time of the zone. */
template <class Visit>
auto with_algorithm(const Policy &policy, uint64_t time_ms, uint64_t limit, const Visit &visit) {
    switch (policy.algorithm) {
    case Algorithm::kFixed:
        if (policy.calendar != Calendar::kNone) {
            return visit(CalendarFixed(policy, time_ms, limit));
        }

        return visit(Fixed(policy, time_ms, limit));
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
        return visit(Bucket(policy, time_ms, limit));
    case Algorithm::kInFlight:
        return visit(InFlight(policy, time_ms, limit));
    default:
        return visit(Counter(policy, time_ms, limit));
    }
}

/* Calls visit() with the algorithm of a claim, at a time of the caller. */
template <class Visit>
auto with_algorithm(const Claim &claim, uint64_t now_ms, const Visit &visit) {
    return with_algorithm(*claim.policy, time_of(claim, now_ms), claim.limit, visit);
}

/* Looks at a slot with another window than the claim's.  `time_ms` is the zone's time. */
OtherWindowSlot other_window_slot(Copy copy, const Claim &claim, uint64_t time_ms);

/* Ranks states at one moment. */
template <class Algorithm>
struct WordView {
    Algorithm seen;
    const Claim *claim;
    uint64_t seen_ms; /* the zone's time */

    uint64_t used(const Copy &copy) const { return seen.rank(copy.bare_state()); }

    uint64_t expires_ms(const Copy &copy) const { return seen.expires_ms(copy.bare_state()); }

    /* Returns the used share of the claim's limit; 1 if not even one request fits. */
    double share(const Copy &copy, uint64_t) const {
        uint64_t next;
        const double used_share = seen.share(copy.bare_state());
        const bool has_room = (used_share < 0.5 && claim->limit > 1 && !claim->policy->is_bucket())
                              || seen.admit(copy.bare_state(), 1, &next);
        return has_room ? used_share : 1;
    }

    uint64_t used_at_all(const Copy &copy, unsigned digits) const {
        return seen.rank_at_all(copy.bare_state(), digits);
    }

    OtherWindowSlot other_window_slot(const Copy &copy) const {
        return limit_sliding::other_window_slot(copy, *claim, seen_ms);
    }
};

template <class Algorithm>
WordView(const Algorithm &, const Claim *, uint64_t) -> WordView<Algorithm>;

/* One window may be a calendar's, so the zone's algorithm may differ from the claim's.  The copy is
 * an argument by value, and the function out of line, so that requests that meet no such slot keep
 * their values in registers. */
[[gnu::noinline]] inline OtherWindowSlot other_window_slot(Copy copy, const Claim &claim,
                                                           uint64_t time_ms) {
    const Policy &own = *claim.policy;
    const Policy shared = own.salt == 0 ? own : claim.zone->shared_policy(own);
    return with_algorithm(shared, time_ms, claim.limit, [&](const auto &algorithm) {
        return OtherWindowSlot::of(copy, WordView{algorithm, &claim, time_ms}, algorithm.epoch(),
                                   KeyEpochs{own, time_ms});
    });
}

/* The step of the table (table.hpp) for one request.  States count until they have expired by the
 * clocks of all workers. */
template <class Algorithm>
struct WordStep : WordView<Algorithm> {
    Algorithm algorithm;
    uint64_t cost;

    WordStep(const Algorithm &a, uint64_t c, const Claim &of, uint64_t now_ms)
        : WordView<Algorithm>{Algorithm(*of.policy, behind_ms(time_of(of, now_ms)), of.limit), &of,
                              behind_ms(time_of(of, now_ms))},
          algorithm(a), cost(c) {}

    [[gnu::always_inline]] bool admit(uint64_t state, uint64_t *next) const {
        return algorithm.admit(state, cost, next);
    }

    bool clear(Copy *copy) const { return copy->store(0); }
};

/* Decides most states for Table::update_ready(). */
template <class Algorithm>
struct ReadyAdmit {
    Algorithm &algorithm;
    uint64_t cost;

    [[gnu::always_inline]] bool operator()(uint64_t state, uint64_t *next,
                                           bool *is_admitted) const {
        return algorithm.admit_ready(state, cost, next, is_admitted);
    }
};

/* Replaces the state of a key by change(state). */
template <class Algorithm, class Change>
struct ChangeStep : WordStep<Algorithm> {
    Change change;

    ChangeStep(const Algorithm &a, const Claim &of, uint64_t now_ms, const Change &c)
        : WordStep<Algorithm>(a, 0, of, now_ms), change(c) {}

    bool admit(uint64_t state, uint64_t *next) const {
        *next = change(state);
        return true;
    }
};

[[gnu::always_inline]] inline Table<WordSlots> table_of(const Claim &claim, const TagEpoch &epoch) {
    return {WordSlots(claim.zone), counts_of(claim), claim.hash, epoch};
}

/* Returns the table for keys with the zone's window. */
template <class Algorithm>
[[gnu::always_inline]] inline Table<WordSlots> shared_table_of(const Claim &claim,
                                                               const Algorithm &algorithm) {
    return table_of(claim, TagEpoch{algorithm.epoch(), 0});
}

inline bool has_key_window(const Claim &claim) { return claim.policy->salt != 0; }

[[gnu::noinline]] inline TagEpoch key_epoch(const Claim &claim, uint64_t now_ms) {
    return KeyEpochs{*claim.policy, time_of(claim, now_ms)}.present();
}

/* Returns the table for any key. */
template <class Algorithm>
[[gnu::always_inline]] inline Table<WordSlots> table_of(const Claim &claim,
                                                        const Algorithm &algorithm,
                                                        uint64_t now_ms) {
    return table_of(claim, has_key_window(claim) ? key_epoch(claim, now_ms)
                                                 : TagEpoch{algorithm.epoch(), 0});
}

} // namespace limit_sliding
