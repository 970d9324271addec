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

#include "http/lua/lua_hold.hpp"
#include "http/request/held_claims.hpp"
#include "http/request/remote_claims.hpp"
#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/asks/ask.hpp"
#include "redis/decisions/decision.hpp"

/* The C name is that of the border. */
struct limit_sliding_wait {
    void *semaphore; /* of ngx_lua */
    int (*post)(void *semaphore, int n);
    void (*free)(void *semaphore);

    limit_sliding::LuaCall call; /* the last one; its key is in `key` */
    u_char *key;
    size_t key_bytes; /* size of the memory of `key` */

    limit_sliding_hold *hold; /* waits for units; nullptr: none */
};

namespace limit_sliding {
namespace {

using Wait = limit_sliding_wait;

/* Resumes the coroutine of Lua. */
void wake(Wait &wait) { (void)wait.post(wait.semaphore, 1); }

/* Copies the key of the call.  Returns false if there is no memory. */
bool keep_key(Wait &wait) {
    ngx_str_t &key = wait.call.key;
    if (key.len > wait.key_bytes) {
        ngx_free(wait.key);
        wait.key_bytes = std::max<size_t>(key.len, 64);
        wait.key = static_cast<u_char *>(ngx_alloc(wait.key_bytes, ngx_cycle->log));
        if (wait.key == nullptr) {
            wait.key_bytes = 0;
            return false;
        }
    }

    (void)append(wait.key, view(key));
    key.data = wait.key;
    return true;
}

/* Decides a look by leased units, as they would decide a take.  Returns false if they do not. */
bool look_at_leases(Claim &claim) {
    claim.purpose = Purpose::kConsume;
    const bool admits = spend_leases({&claim, 1});
    claim.purpose = Purpose::kLook;
    if (!admits) { return false; }

    return_leases({&claim, 1});
    Verdict &leased = remote_of(claim).verdict;
    leased.remaining = std::min(leased.remaining + claim.cost, leased.limit);
    describe_leases({&claim, 1});
    return true;
}

Progress end_decision(KeyCall &call) {
    is_held(call.claim) ? end_hold(call.claim, call.waiter.result)
                        : end_one(call.claim, call.waiter.result);
    return Progress::kDone;
}

/* Takes the units of the call, for wait.hold in a zone with inflight=; or peeks. */
Progress decide(Wait &wait) {
    LuaCall &call = wait.call;
    Claim &claim = call.claim;
    Waiter *waiter = &call.waiter;
    call.next = end_decision;
    if (!is_held(claim)) {
        const bool peeks = !decide_by_ban(call) && claim.is_here() && call.operation == kLuaPeek;
        return (peeks && look_at_leases(claim)) || decide_one(claim, waiter) ? Progress::kDone
                                                                             : Progress::kWaits;
    }

    /* The units of a hold outlive the call. */
    if (wait.hold != nullptr) {
        complete_remote(claim, *call.zone, call.key, *wait.hold->remote);
        claim.hold = &wait.hold->units;
    } else {
        claim.cost = 0;
    }

    complete_held(claim);
    return !claim.is_here() || hold_units(claim, waiter) ? Progress::kDone : Progress::kWaits;
}

/* Ends the call, unless it waits.  A look at units in flight has the cost 0, so the units for which
 * Lua peeks are compared with the remaining units here. */
LuaCode end(Wait &wait, Progress progress, limit_sliding_verdict *verdict) {
    const LuaCall &call = wait.call;
    const LuaCode code = end_call(wait.call, progress, verdict);
    if (code == kLuaDone && is_held(call.claim) && call.operation == kLuaPeek
        && verdict->remaining_number < static_cast<double>(call.units)) {
        verdict->admitted = false;
        verdict->retry_after_number = HUGE_VAL;
    }

    return code;
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

/* Begins the call, which has its key. */
LuaCode ask(Wait &wait, limit_sliding_verdict *verdict) {
    LuaCode code;
    if (!make_claim(wait.call, verdict, &code)) { return code; }

    return end(wait, wait.call.decides() ? decide(wait) : change(wait.call), verdict);
}

/* Ends the wait of a hold that is released while Redis is asked. */
void leave_wait(limit_sliding_hold &hold) {
    leave_ask(&hold.wait->call.waiter);
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
    init_event<wake>(wait->call.waiter.event, *wait);
    return wait;
}

int limit_sliding_lua_ask(limit_sliding_wait *wait, const limit_sliding_zone *zone, int operation,
                          const char *key, size_t len, const limit_sliding_rate *rate,
                          uint64_t units, limit_sliding_verdict *verdict) {
    if (zone->in_flight && operation != kLuaPeek) { return kLuaHeld; }

    begin_call(wait->call, zone, operation, {key, len}, rate, units);
    return keep_key(*wait) ? ask(*wait, verdict) : kLuaNoMemory;
}

int limit_sliding_lua_answer(limit_sliding_wait *wait, limit_sliding_verdict *verdict) {
    /* An operation that this coroutine could not wait for, because of a C function between, may
     * have resumed the coroutine: ngx_lua wakes coroutines, not calls. */
    LuaCall &call = wait->call;
    if (call.waiter.ask != nullptr || call.waiter.event.posted) { return kLuaWaits; }

    if (is_held(call.claim) && call.operation == kLuaTake && wait->hold == nullptr) {
        return kLuaNoHold;
    }

    return conclude_hold(*wait, end(*wait, call.next(call), verdict), *verdict);
}

int limit_sliding_lua_ask_hold(limit_sliding_wait *wait, const limit_sliding_zone *zone,
                               void *request, const char *key, size_t len,
                               const limit_sliding_rate *rate, uint64_t units,
                               limit_sliding_verdict *verdict, limit_sliding_hold **hold) {
    if (!zone->in_flight) { return kLuaNotHeld; }

    begin_call(wait->call, zone, kLuaTake, {key, len}, rate, units);
    if (!keep_key(*wait)) { return kLuaNoMemory; }

    auto *created = create_hold(wait->call, static_cast<ngx_http_request_t *>(request));
    if (created == nullptr) { return kLuaNoMemory; }

    wait->hold = created;
    created->wait = wait;
    created->leave = leave_wait;
    created->is_dropped = true; /* until Lua has it */
    created->remote = create_on_heap<RemoteClaim>();
    *hold = created;
    const LuaCode code = created->remote != nullptr ? ask(*wait, verdict) : kLuaNoMemory;
    return conclude_hold(*wait, code, *verdict);
}

void limit_sliding_lua_end(limit_sliding_wait *wait) {
    if (wait->hold != nullptr) { destroy_hold(*wait->hold); }

    leave_ask(&wait->call.waiter);
    wait->free(wait->semaphore);
    ngx_free(wait->key);
    destroy_on_heap(wait);
}
