/* Copyright (C) the limit_sliding authors */

/* Calls about keys in Redis.  After a change in Redis, the old facts of this node are deleted as
 * well.  Other nodes ask Redis again within a second. */

#include <algorithm>

#include "http/calls/key_call.hpp"
#include "redis/decisions/client.hpp"
#include "redis/shared/outbox.hpp"
#include "redis/shares/claim_units.hpp"

namespace limit_sliding {
namespace {

/* Lets `next` continue the call if Redis was asked. */
Progress wait_for(KeyCall &call, bool is_asked, decltype(KeyCall::next) next) {
    call.next = next;
    return is_asked ? Progress::kWaits : Progress::kAway;
}

Progress send(KeyCall &call, KeyCommand command, decltype(KeyCall::next) next,
              std::string_view value = {}, ngx_msec_t ttl_ms = 0) {
    return wait_for(call, send_key_command(call.claim, command, value, ttl_ms, &call.waiter), next);
}

/* Gives the claim the limit and the window that Redis uses if the key has no override. */
void set_usual_limit(KeyCall &call) {
    call.set_limit(call.usual_basis());
    call.remote.asked = call.claim.policy;
}

Progress end_look(KeyCall &call) {
    if (call.waiter.told == Told::kFailed) { return Progress::kAway; }

    call.own = call.remote.own;
    return Progress::kDone;
}

Progress end_command(KeyCall &call) {
    const Told told = call.waiter.told;
    return told == Told::kAdmitted ? Progress::kDone
           : told == Told::kFailed ? Progress::kFailed
                                   : Progress::kRefused;
}

/* Also settles the units in this node's memory, in case Redis fails later. */
Progress end_charge(KeyCall &call) {
    const Progress progress = end_command(call);
    if (progress != Progress::kDone) { return progress; }

    call.own = call.remote.own;
    if (call.limit().is_limited()) {
        uint64_t lost;
        call.set_limit(call.basis());
        (void)settle_here(as_local(call.claim), call.units, &lost);
    }

    forget_here(call, Facts::kRefusals);
    return progress;
}

Progress end_take(KeyCall &call) {
    return call.waiter.told == Told::kRejected ? Progress::kDone : end_charge(call);
}

Progress end_forget(KeyCall &call) {
    const Progress progress = end_command(call);
    if (progress == Progress::kDone) { forget_here(call, Facts::kHistory); }

    return progress;
}

/* The key's override may have another window than the key had without it. */
Progress forget_usual(KeyCall &call) {
    const Window &usual = call.usual.window;
    if (call.waiter.told != Told::kAdmitted || !usual.is_given()
        || usual == call.claim.policy->window()) {
        return end_forget(call);
    }

    set_usual_limit(call);
    return send(call, KeyCommand::kForget, end_forget);
}

/* The command also deletes the history in the window of the zone. */
Progress forget_window(KeyCall &call) {
    const Progress progress = end_look(call);
    return progress == Progress::kDone ? send(call, KeyCommand::kForget, forget_usual) : progress;
}

Progress end_override(KeyCall &call) {
    const Progress progress = end_command(call);
    if (progress == Progress::kDone) { forget_here(call, Facts::kLeases); }

    return progress;
}

Progress end_ttl(KeyCall &call) {
    return call.waiter.told == Told::kFailed ? Progress::kAway : Progress::kDone;
}

/* Refunds units that were not sent to Redis yet, the latest ones.  Returns their number. */
int64_t refund_unsent(const KeyCall &call) {
    Outbox *outbox = call.zone->remote.outbox;
    if (call.units >= 0 || outbox == nullptr) { return 0; }

    return static_cast<int64_t>(
        outbox->subtract(call.claim.hash, static_cast<uint64_t>(-call.units)));
}

} // namespace

Progress look(KeyCall &call) {
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
    set_usual_limit(call);
    const int64_t units = call.units + refund_unsent(call);
    return wait_for(call, charge_redis(&call.claim, units, &call.waiter), end_charge);
}

Progress take(KeyCall &call) {
    set_usual_limit(call);
    call.claim.purpose = Purpose::kConsume;
    call.claim.cost = std::min<uint64_t>(call.units, kRemoteMax + 1);
    return wait_for(call, ask_redis({&call.claim, 1}, &call.waiter), end_take);
}

Progress forget(KeyCall &call) {
    const Progress progress = look(call);
    call.next = forget_window;
    return progress;
}

Progress set_override(KeyCall &call, std::string_view rate, ngx_msec_t ttl_ms) {
    return send(call, rate.empty() ? KeyCommand::kUnsetOverride : KeyCommand::kSetOverride,
                end_override, rate, ttl_ms);
}

Progress ask_ttl(KeyCall &call) { return send(call, KeyCommand::kAskTtl, end_ttl); }

} // namespace limit_sliding
