/* Copyright (C) the limit_sliding authors */

/* Decisions by the history of a key alone.  debtor.hpp decides keys that owe. */

#pragma once

#include <cstdint>

#include "core/policy/claim.hpp"

namespace limit_sliding {

/* Return the functions that consume a claim, or decide it without consuming. */
Decide *consume_by_history(const Policy &policy, uint64_t limit);
Decide *look_by_history(const Policy &policy, uint64_t limit);

inline void consume_history(Claim *claim, uint64_t now_ms) {
    consume_by_history(*claim->policy, claim->limit)(claim, now_ms);
}

inline void look_at_history(Claim *claim, uint64_t now_ms) {
    look_by_history(*claim->policy, claim->limit)(claim, now_ms);
}

/* Describes the history of a key for a request of this cost.  claim.state must be the state of a
 * decision; a ring is read anew. */
Verdict describe_history(const Claim &claim, uint64_t cost, uint64_t now_ms);

/* Returns the used share of the units that an admitted claim may use at once, 1 if all are used. */
double share(const Claim &claim, uint64_t now_ms);

inline bool is_admitted(const Claim &claim) { return claim.outcome == Outcome::kAdmitted; }

} // namespace limit_sliding
