/* Copyright (C) the limit_sliding authors */

/* The commands of an administrator for one key.  Each is an ask that no other request shares. */

#pragma once

#include "redis/calls/ask.hpp"

namespace limit_sliding {

enum class KeyCommand { kForget = 0, kSetLimit, kUnsetLimit, kAskTtl };

/* Sends a command after a call for the claim's key was answered, because Redis answers then.
 * `value` is the rate that kSetLimit sets, which Redis removes after ttl_ms; 0: never.  Returns
 * false if the command cannot be sent; else the waiter will be told, kAdmitted after a success. */
bool send_key_command(Claim *claim, KeyCommand command, ngx_str_t *value, ngx_msec_t ttl_ms,
                      Waiter *waiter);

} // namespace limit_sliding
