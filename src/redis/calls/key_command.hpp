/* Copyright (C) the limit_sliding authors */

/* Commands for one key, which an administrator gives.  Each is an ask of its
 * own: so it waits for a connection, and follows a slot that has moved. */

#pragma once

#include "redis/calls/ask.hpp"

namespace limit_sliding {

/* To be called once an ask for the claim's key was told, as then Redis answers.
 * The value is that of a limit to be set, a rate, which Redis removes after so
 * many milliseconds; 0: never.  Returns false if it cannot be sent, else the
 * waiter will be told, kAdmitted if it was done. */
bool send_key_command(Claim *claim, KeyCommand command, ngx_str_t *value, ngx_msec_t ttl_ms,
                      Waiter *waiter);

/* Puts the call of a command into the node's buffer, see call_script(). */
bool call_key_command(Node &node, AskCall &call);

} // namespace limit_sliding
