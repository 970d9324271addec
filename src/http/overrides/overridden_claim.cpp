/* Copyright (C) the limit_sliding authors */

#include "http/overrides/overridden_claim.hpp"

#include "ngx/memory.hpp"

namespace limit_sliding {

bool apply_override(ngx_pool_t *pool, const ZoneConf &zone, const Override &own, Claim &claim) {
    TermsRoom *room = nullptr;
    if (needs_room(own, zone.policy)) {
        room = alloc<TermsRoom>(pool);
        if (room == nullptr) { return false; }
    }

    (void)apply_override(claim, zone.policy, own, room);
    return true;
}

} // namespace limit_sliding
