/* Copyright (C) the limit_sliding authors */

/* After a change in Redis, the old facts of this node are deleted as well.  Other nodes ask Redis
 * again within a second. */

#include "http/calls/key_call.hpp"

#include <algorithm>

#include "core/limiter/limiter.hpp"
#include "redis/decisions/client.hpp"
#include "redis/shared/outbox.hpp"
#include "redis/shares/claim_units.hpp"

namespace limit_sliding {
namespace {

/* Finds the override of the key in this node's memory. */
void find_own(KeyCall &call) {
    const auto now_s = static_cast<uint64_t>(ngx_time());
    Overrides::Entry entry;
    if (!call.zone->memory.aside.overrides->find(call.claim.key_hash(), &entry)
        || entry.until_s <= now_s) {
        return;
    }

    call.own = entry.own;
    if (entry.until_s != kNoEnd) { call.ttl_s = entry.until_s - now_s; }
}

/* Gives the claim the limit by which the history is shown. */
void set_basis(KeyCall &call) {
    call.set_limit(call.basis());
    call.claim.fit_core();
}

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

/* Lets `next` continue the call if Redis was asked. */
Progress wait_for(KeyCall &call, bool is_asked, decltype(KeyCall::next) next) {
    call.next = next;
    return is_asked ? Progress::kWaits : Progress::kAway;
}

Progress send(KeyCall &call, KeyCommand command, decltype(KeyCall::next) next,
              std::string_view value = {}, ngx_msec_t ttl_ms = 0) {
    const bool is_sent
        = kHasRedis && send_key_command(call.claim, command, value, ttl_ms, &call.waiter);
    return wait_for(call, is_sent, next);
}

/* Gives the claim the limit and the window that Redis uses if the key has no override. */
void set_usual_limit(KeyCall &call) {
    call.set_limit(call.usual_basis());
    call.remote.asked = call.claim.policy;
}

Progress end_look(KeyCall &call) {
    if (call.waiter.result == WaitResult::kFailed) { return Progress::kAway; }

    call.own = call.remote.own;
    return Progress::kDone;
}

Progress end_command(KeyCall &call) {
    const WaitResult result = call.waiter.result;
    return result == WaitResult::kAdmitted ? Progress::kDone
           : result == WaitResult::kFailed ? Progress::kFailed
                                           : Progress::kRefused;
}

Progress end_charge(KeyCall &call) {
    const Progress progress = end_command(call);
    if (progress != Progress::kDone) { return progress; }

    call.own = call.remote.own;
    if (has_number(call.limit())) {
        uint64_t lost;
        call.set_limit(call.basis());
        (void)settle_here(as_local(call.claim), call.units, &lost);
    }

    forget_here(call, Facts::kRefusals);
    return progress;
}

Progress end_take(KeyCall &call) {
    return call.waiter.result == WaitResult::kRejected ? Progress::kDone : end_charge(call);
}

Progress end_forget(KeyCall &call) {
    const Progress progress = end_command(call);
    if (progress == Progress::kDone) { forget_here(call, Facts::kHistory); }

    return progress;
}

/* The key's override may have another window than the key had without it. */
Progress forget_usual(KeyCall &call) {
    if (call.waiter.result != WaitResult::kAdmitted
        || !is_own_window(*call.claim.policy, call.usual.window)) {
        return end_forget(call);
    }

    set_usual_limit(call);
    return send(call, KeyCommand::kForget, end_forget);
}

/* The command also deletes the history in the window of the zone. */
Progress forget_looked(KeyCall &call) {
    const Progress progress = end_look(call);
    return progress == Progress::kDone ? send(call, KeyCommand::kForget, forget_usual) : progress;
}

Progress end_override(KeyCall &call) {
    const Progress progress = end_command(call);
    if (progress == Progress::kDone) { forget_here(call, Facts::kLeases); }

    return progress;
}

/* The override may have expired since the look. */
Progress end_ttl(KeyCall &call) {
    if (call.waiter.result == WaitResult::kFailed) { return Progress::kAway; }

    const int64_t ttl_ms = call.remote.ttl_ms;
    if (ttl_ms >= 0) { call.ttl_s = seconds(static_cast<uint64_t>(ttl_ms)); }

    return Progress::kDone;
}

/* Refunds units that were not sent to Redis yet, the latest ones.  Returns their number. */
int64_t refund_unsent(const KeyCall &call) {
    Outbox *outbox = call.zone->remote.outbox;
    if (call.units >= 0 || outbox == nullptr) { return 0; }

    return static_cast<int64_t>(
        outbox->subtract(call.claim.hash, static_cast<uint64_t>(-call.units)));
}

} // namespace

void look_here(KeyCall &call) {
    call.claim.purpose = Purpose::kLook;
    call.claim.cost = 0;
    set_basis(call);
    (void)acquire(&call.claim, 1, ngx_current_msec);
}

Progress look(KeyCall &call) {
    if (!kHasRedis || !call.zone->is_remote()) {
        find_own(call);
        look_here(call);
        return Progress::kDone;
    }

    Claim &claim = call.claim;
    set_usual_limit(call);
    claim.purpose = Purpose::kLook;
    claim.cost = 0;
    const bool is_asked = claim.policy->is_in_flight()
                              ? !take_units(claim, &call.waiter).has_value()
                              : ask_redis({&claim, 1}, &call.waiter);
    return wait_for(call, is_asked, end_look);
}

Progress charge(KeyCall &call) {
    if (!kHasRedis || !call.zone->is_remote()) {
        uint64_t lost;
        set_basis(call);
        return settle_here(call.claim, call.units, &lost) ? Progress::kDone : Progress::kNoRoom;
    }

    set_usual_limit(call);
    const int64_t units = call.units + refund_unsent(call);
    return wait_for(call, charge_redis(&call.claim, units, &call.waiter), end_charge);
}

Progress take(KeyCall &call) {
    Claim &claim = call.claim;
    claim.purpose = Purpose::kConsume;
    claim.cost = std::min<uint64_t>(call.units, kRemoteMax + 1);
    if (kHasRedis && call.zone->is_remote()) {
        set_usual_limit(call);
        return wait_for(call, ask_redis({&claim, 1}, &call.waiter), end_take);
    }

    set_basis(call);
    (void)acquire(&claim, 1, ngx_current_msec);
    return Progress::kDone;
}

Progress forget(KeyCall &call) {
    if (kHasRedis && call.zone->is_remote()) {
        const Progress progress = look(call);
        call.next = forget_looked;
        return progress;
    }

    find_own(call);
    forget_here(call, Facts::kHistory);
    return Progress::kDone;
}

Progress set_override(KeyCall &call, std::string_view rate, ngx_msec_t ttl_ms) {
    return send(call, rate.empty() ? KeyCommand::kUnsetOverride : KeyCommand::kSetOverride,
                end_override, rate, ttl_ms);
}

Progress ask_ttl(KeyCall &call) { return send(call, KeyCommand::kAskTtl, end_ttl); }

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
