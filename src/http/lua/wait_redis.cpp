/* Copyright (C) the limit_sliding authors */

/*
 * Calls of Lua for which Redis is asked.  The coroutine of Lua waits on a semaphore of ngx_lua,
 * which is posted once Redis has replied or failed.
 *
 * A wait owns the semaphore and all memory that an ask refers to, because Lua may drop a coroutine
 * at any time.  Lua's collector ends the wait then.
 */

#include <algorithm>
#include <cmath>

#include "http/keys/key_operations.hpp"
#include "http/lua/lua_hold.hpp"
#include "http/request/held_claims.hpp"
#include "http/request/remote_claims.hpp"
#include "http/response/context.hpp"
#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/asks/ask.hpp"
#include "redis/decisions/client.hpp"

/* The C name is that of the border. */
struct limit_sliding_wait {
    void *semaphore; /* of ngx_lua */
    int (*post)(void *semaphore, int n);
    void (*free)(void *semaphore);

    limit_sliding::LuaCall call; /* the last one; its key is in `key` */
    u_char *key;
    size_t key_bytes; /* size of the memory of `key` */

    /* Continues the call once Redis has replied or failed. */
    limit_sliding::LuaCode (*next)(limit_sliding_wait &wait, limit_sliding_verdict *verdict);

    limit_sliding::LuaClaim memory; /* see memory_of() */
    limit_sliding::RemoteWait remote;
    limit_sliding::Context ctx; /* has the claim */
    limit_sliding_hold *hold;   /* waits for units, and has the claim's memory; nullptr: none */
};

namespace limit_sliding {
namespace {

using Wait = limit_sliding_wait;

Claim &claim_of(Wait &wait) { return wait.ctx.claims[0]; }

/* Resumes the coroutine of Lua. */
void wake(Wait &wait) { (void)wait.post(wait.semaphore, 1); }

/* Keeps the call and its key.  Returns false if there is no memory. */
bool keep_call(Wait &wait, const LuaCall &call) {
    wait.call = call;
    if (call.key.len > wait.key_bytes) {
        ngx_free(wait.key);
        wait.key_bytes = std::max<size_t>(call.key.len, 64);
        wait.key = static_cast<u_char *>(ngx_alloc(wait.key_bytes, ngx_cycle->log));
        if (wait.key == nullptr) {
            wait.key_bytes = 0;
            return false;
        }
    }

    (void)append(wait.key, view(call.key));
    wait.call.key.data = wait.key;
    return true;
}

/* Returns the memory of the claim.  That of a hold must live as long as its units. */
LuaClaim &memory_of(Wait &wait) { return wait.hold != nullptr ? *wait.hold->memory : wait.memory; }

/* Makes the claim of the call anew. */
LuaCode make_claim(Wait &wait) { return make_claim(wait.call, claim_of(wait), wait.memory); }

/* Returns the error of a call that Redis has not executed. */
LuaCode error_of(Told told) { return told == Told::kFailed ? kLuaAway : kLuaRefused; }

/* Lets the coroutine wait for `next` if Redis was asked. */
LuaCode wait_for(Wait &wait, bool is_asked, decltype(Wait::next) next) {
    wait.next = next;
    return is_asked ? kLuaWaits : kLuaAway;
}

/* ---- decisions ---- */

LuaCode end_decision(Wait &wait, Decision decision, limit_sliding_verdict *verdict) {
    if (decision == Decision::kAsked) { return kLuaWaits; }

    if (decision == Decision::kFailed) { return kLuaNoMemory; }

    conclude(wait.call, claim_of(wait), wait.memory, verdict);
    return kLuaDone;
}

/* Decides a look by leased units, as they would decide a take.  Returns false if they do not. */
bool look_at_leases(Claim &claim) {
    claim.purpose = Purpose::kConsume;
    const bool admits = spend_leases({&claim, 1});
    claim.purpose = Purpose::kLook;
    if (!admits) { return false; }

    return_leases({&claim, 1});
    Verdict &told = remote_of(claim).verdict;
    told.remaining = std::min(told.remaining + claim.cost, told.limit);
    describe_leases({&claim, 1});
    return true;
}

LuaCode decision_replied(Wait &wait, limit_sliding_verdict *verdict) {
    return end_decision(wait, decide_replied(nullptr, wait.ctx), verdict);
}

LuaCode begin_decision(Wait &wait, limit_sliding_verdict *verdict) {
    Context &ctx = wait.ctx;
    ctx = {};
    ctx.wait = &wait.remote;
    ctx.now_ms = ngx_current_msec;
    wait.next = decision_replied;
    LuaCode code;
    if (!begin_claim(wait.call, claim_of(wait), wait.memory, verdict, &code)) { return code; }

    Claim &claim = claim_of(wait);
    if (!decide_by_ban(wait.call, claim, wait.memory) && claim.is_here()
        && wait.call.operation == kLuaPeek && look_at_leases(claim)) {
        conclude(wait.call, claim, wait.memory, verdict);
        return kLuaDone;
    }

    return end_decision(wait, decide_remote(nullptr, ctx, {&claim, 1}), verdict);
}

/* ---- charges ---- */

/* Makes the claim of a settlement, with the limit of the key's override.  Returns false if the call
 * ends with *code: an error, or kLuaDone because the override is "off" or "0". */
bool make_settled(Wait &wait, LuaCode *code) {
    Claim &claim = claim_of(wait);
    *code = make_claim(wait);
    if (*code != kLuaDone || wait.memory.is_unlimited || !claim.is_here()) { return false; }

    const Override own = remote_of(claim).zone->told->find(claim.key_hash());
    if (own.is_limited()) {
        set_window(claim, own);
        claim.limit = own.limit;
    }

    return !own.is_set() || own.is_limited();
}

/* Deletes the refusals of the key, and also settles the units in this node's memory, in case Redis
 * fails later. */
LuaCode end_charge(Wait &wait, limit_sliding_verdict *) {
    const Told told = wait.remote.waiter.told;
    if (told != Told::kAdmitted) { return error_of(told); }

    LuaCode code;
    if (make_settled(wait, &code)) {
        forget_claim(wait.call.zone->conf(), claim_of(wait), NGX_HTTP_POST);
        claim_of(wait).fit_core();
        (void)settle_here(wait.call, claim_of(wait));
    }

    return code;
}

LuaCode begin_charge(Wait &wait) {
    LuaCode code;
    if (!make_settled(wait, &code)) { return code; }

    const auto units = static_cast<int64_t>(wait.call.units);
    const int64_t cost = wait.call.operation == kLuaCharge ? units : -units;
    return wait_for(wait, charge_redis(&claim_of(wait), cost, &wait.remote.waiter), end_charge);
}

/* ---- deletions of keys ---- */

LuaCode end_forget(Wait &wait, limit_sliding_verdict *) {
    const Told told = wait.remote.waiter.told;
    if (told != Told::kAdmitted) { return error_of(told); }

    const LuaCode code = make_claim(wait);
    if (code == kLuaDone) { forget_key(wait.call, claim_of(wait), wait.memory); }

    return code;
}

/* The command forgets the window of the claim as well: that of the key's override, else the
 * caller's. */
LuaCode end_look(Wait &wait, limit_sliding_verdict *) {
    if (wait.remote.waiter.told == Told::kFailed) { return kLuaAway; }

    Claim &claim = claim_of(wait);
    if (!remote_of(claim).own.window.is_given()) {
        set_policy(claim, with_window(wait.call.zone->conf().policy, wait.call.rate.window));
    }

    ngx_str_t none = {};
    return wait_for(wait,
                    send_key_command(&claim, KeyCommand::kForget, &none, 0, &wait.remote.waiter),
                    end_forget);
}

/* Looks at the key first, which shows that Redis answers.  With sync=, the key's override may have
 * decided the claim already. */
LuaCode begin_forget(Wait &wait) {
    const LuaCode code = make_claim(wait);
    if (code != kLuaDone) { return code; }

    Claim &claim = claim_of(wait);
    const ZoneConf &zone = wait.call.zone->conf();
    apply_override(zone, {zone.any_limit(), {}}, claim, wait.memory.parts);
    claim.cost = 0;
    return wait_for(wait, ask_redis({&claim, 1}, &wait.remote.waiter), end_look);
}

/* ---- units in flight ---- */

/* Describes a decision about units in flight.  A look has the cost 0, so the units for which Lua
 * peeks are compared with the remaining units here. */
LuaCode end_units(Wait &wait, limit_sliding_verdict *verdict) {
    conclude(wait.call, claim_of(wait), memory_of(wait), verdict);
    if (wait.call.operation == kLuaPeek
        && verdict->remaining_number < static_cast<double>(wait.call.units)) {
        verdict->admitted = false;
        verdict->retry_after_number = HUGE_VAL;
    }
    return kLuaDone;
}

/* Ends the wait of a hold, if there is one: Lua gets the hold if it has units. */
LuaCode conclude_hold(Wait &wait, LuaCode code, const limit_sliding_verdict &verdict) {
    if (code == kLuaWaits || wait.hold == nullptr) { return code; }

    limit_sliding_hold &hold = *wait.hold;
    wait.hold = nullptr;
    hold.wait = nullptr;
    hold.is_dropped = false;
    if (code != kLuaDone || !verdict.admitted) { destroy_hold(hold); }

    return code;
}

LuaCode units_replied(Wait &wait, limit_sliding_verdict *verdict) {
    if (wait.call.operation == kLuaTake && wait.hold == nullptr) { return kLuaNoHold; }

    end_hold(claim_of(wait), wait.remote.waiter.told);
    return conclude_hold(wait, end_units(wait, verdict), *verdict);
}

/* Asks for the units of wait.hold; without a hold, looks at the key. */
LuaCode begin_units(Wait &wait, limit_sliding_verdict *verdict) {
    wait.next = units_replied;
    Claim &claim = claim_of(wait);
    LuaCode code;
    if (!begin_claim(wait.call, claim, memory_of(wait), verdict, &code)) { return code; }

    if (wait.hold != nullptr) {
        claim.hold = &wait.hold->units;
    } else {
        claim.cost = 0;
    }

    complete_held(claim);
    const bool is_decided = !claim.is_here() || hold_units(claim, &wait.remote.waiter);
    return is_decided ? end_units(wait, verdict) : kLuaWaits;
}

/* Ends the wait of a hold that is released while Redis is asked. */
void leave_wait(limit_sliding_hold &hold) {
    leave_ask(&hold.wait->remote.waiter);
    hold.wait->hold = nullptr;
    hold.wait = nullptr;
}

} // namespace
} // namespace limit_sliding

using namespace limit_sliding;

limit_sliding_wait *limit_sliding_lua_wait(void *semaphore, int (*post)(void *, int),
                                           void (*free)(void *)) {
    auto *wait = create_on_heap<Wait>();
    if (wait == nullptr) { return nullptr; }

    wait->semaphore = semaphore;
    wait->post = post;
    wait->free = free;
    init_event<wake>(wait->remote.waiter.event, *wait);
    return wait;
}

int limit_sliding_lua_ask(limit_sliding_wait *wait, const limit_sliding_zone *zone, int operation,
                          const char *key, size_t len, const limit_sliding_rate *rate,
                          uint64_t units, limit_sliding_verdict *verdict) {
    if (zone->in_flight && operation != kLuaPeek) { return kLuaHeld; }

    if (!keep_call(*wait, make_call(zone, operation, key, len, rate, units))) {
        return kLuaNoMemory;
    }

    switch (wait->call.operation) {
    case kLuaTake:
    case kLuaPeek:
        return zone->in_flight ? begin_units(*wait, verdict) : begin_decision(*wait, verdict);
    case kLuaForget:
        return begin_forget(*wait);
    default:
        return begin_charge(*wait);
    }
}

int limit_sliding_lua_answer(limit_sliding_wait *wait, limit_sliding_verdict *verdict) {
    /* An operation that this coroutine could not wait for, because of a C function between, may
     * have resumed the coroutine: ngx_lua wakes coroutines, not calls. */
    const Waiter &waiter = wait->remote.waiter;
    if (waiter.ask != nullptr || waiter.event.posted) { return kLuaWaits; }

    return wait->next(*wait, verdict);
}

int limit_sliding_lua_ask_hold(limit_sliding_wait *wait, const limit_sliding_zone *zone,
                               void *request, const char *key, size_t len,
                               const limit_sliding_rate *rate, uint64_t units,
                               limit_sliding_verdict *verdict, limit_sliding_hold **hold) {
    if (!zone->in_flight) { return kLuaNotHeld; }

    if (!keep_call(*wait, make_call(zone, kLuaTake, key, len, rate, units))) {
        return kLuaNoMemory;
    }

    auto *created = create_hold(wait->call, static_cast<ngx_http_request_t *>(request));
    if (created == nullptr) { return kLuaNoMemory; }

    wait->hold = created;
    created->wait = wait;
    created->leave = leave_wait;
    created->is_dropped = true; /* until Lua is told */
    created->memory = create_on_heap<LuaClaim>();
    *hold = created;
    const LuaCode code = created->memory != nullptr ? begin_units(*wait, verdict) : kLuaNoMemory;
    return conclude_hold(*wait, code, *verdict);
}

void limit_sliding_lua_end(limit_sliding_wait *wait) {
    if (wait->hold != nullptr) { destroy_hold(*wait->hold); }

    leave_ask(&wait->remote.waiter);
    wait->free(wait->semaphore);
    ngx_free(wait->key);
    destroy_on_heap(wait);
}
