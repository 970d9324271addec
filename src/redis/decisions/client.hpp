/* Copyright (C) the limit_sliding authors */

/*
 * Limits that Redis decides.
 *
 * The claims of a request become an "ask", which is granted as a whole, and which requests of this
 * worker with the same claims share meanwhile.  Asks that are due in one turn of the event loop
 * leave in one "call" of the script.  Calls are pipelined over a "node", the connection of this
 * worker to a server.
 */

#pragma once

#include "redis/decisions/decision.hpp"
#include "redis/decisions/split_ask.hpp"
#include "redis/settlement/settlement.hpp"

namespace limit_sliding {

/* Makes this worker's part of a Redis, without connections.  Must be called when a worker begins.
 * Returns false if there is no memory. */
bool redis_enter(Redis *redis);

/* Must be called when a worker ends. */
void redis_exit(Redis *redis);

/* Asks for all of the claims or none: 1 to kClaimsMax, none known to be refused, each with its
 * RemoteClaim, the claims of one Redis beside each other.  Returns false if all of their Redises
 * are known not to answer; else the waiter, if it is not nullptr, will be woken.  kFailed: no Redis
 * has rejected, and claims without an answer are unchanged.  An exiting worker waits for the
 * answer even without a waiter. */
bool ask_redis(Span<Claim> claims, Waiter *waiter);

/* Charges the key of a claim `cost` units, or refunds them if they are negative, the newest units
 * first.  Returns false if Redis is known not to answer; else the waiter will be woken, kAdmitted
 * after a success. */
bool charge_redis(Claim *claim, int64_t cost, Waiter *waiter);

/* The commands of an administrator for one key.  Each is an ask that no other request shares. */
enum class KeyCommand { kForget, kSetOverride, kUnsetOverride, kAskTtl };

/* Sends a command after a call for the claim's key was answered, because Redis answers then.
 * `value` is the rate that kSetOverride sets, which Redis removes after ttl_ms; 0: never.  Returns
 * false if the command cannot be sent; else the waiter will be woken, kAdmitted after a success. */
bool send_key_command(Claim &claim, KeyCommand command, std::string_view value, ngx_msec_t ttl_ms,
                      Waiter *waiter);

} // namespace limit_sliding
