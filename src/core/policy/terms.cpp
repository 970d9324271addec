/* Copyright (C) the limit_sliding authors */

#include "core/policy/terms.hpp"

namespace limit_sliding {

Terms apply_override(Claim &claim, const Policy &policy, const Override &own, TermsRoom *room) {
    const Terms terms = terms_of(own);
    claim.set_policy(policy); /* first, because the claim may have the policy of the room */
    if (is_own_window(policy, own.window)) {
        room->policy = with_window(policy, own.window);
        claim.set_policy(room->policy);
    }

    switch (terms) {
    case Terms::kLimited:
        claim.limit = own.limit;
        if (claim.standing != Standing::kBanned) { claim.standing = Standing::kHere; }
        break;
    case Terms::kBlocked:
        claim.limit = 0;
        if (claim.standing == Standing::kBanned) { break; }
        room->verdict = blocked_verdict(claim.cost);
        claim.decide(Standing::kBlocked, Outcome::kRejected, room->verdict);
        break;
    case Terms::kUnlimited:
        room->verdict = unlimited_verdict(*claim.policy, claim.limit);
        claim.decide(Standing::kUnlimited, Outcome::kAdmitted, room->verdict);
        break;
    }
    return terms;
}

} // namespace limit_sliding
