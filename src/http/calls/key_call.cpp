/* Copyright (C) the limit_sliding authors */

#include "http/calls/key_call.hpp"

#include "core/limiter/limiter.hpp"
#include "redis/shared/outbox.hpp"

namespace limit_sliding {
namespace {

/* Deletes facts about the key in the window of the claim. */
void forget_window(const ZoneConf &zone, const Claim &claim, Facts facts) {
    if (facts == Facts::kHistory) { claim.forget(ngx_current_msec); }

    if (claim.remote == nullptr) { return; }

    zone.remote.refusals->forget(claim);

    if (zone.remote.outbox != nullptr && facts == Facts::kHistory) {
        (void)zone.remote.outbox->subtract(claim.hash, UINT32_MAX);
    }

    if (zone.remote.leases != nullptr && facts != Facts::kRefusals) {
        zone.remote.leases->forget(claim, ngx_current_msec);
    }
}

} // namespace

bool settle_here(const Claim &claim, int64_t units, uint64_t *lost) {
    *lost = 0;
    if (units >= 0) { return charge(claim, units, ngx_current_msec, lost); }

    give_back(claim, -units, ngx_current_msec);
    return true;
}

void forget_here(KeyCall &call, Facts facts) {
    const ZoneConf &zone = *call.zone;
    for (const Window &window : {Window{}, call.usual.window, call.own.window}) {
        call.set_limit({zone.any_limit(), window});
        forget_window(zone, call.claim, facts);
    }

    if (facts == Facts::kHistory) { zone.memory.aside.offenders->forget(call.claim.key_hash()); }
}

} // namespace limit_sliding
