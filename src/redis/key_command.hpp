/*
 * Copyright (C) the limit_sliding authors
 */

/* What an administrator orders of one key. */

#ifndef LIMIT_SLIDING_REDIS_KEY_COMMAND_HPP
#define LIMIT_SLIDING_REDIS_KEY_COMMAND_HPP

#include "redis/waiters.hpp"

namespace limit_sliding {

struct AskCall;
struct Node;

enum class KeyCommand { kNone = 0, kForget, kSetLimit, kUnsetLimit };

/*
 * To be called once an ask for the key was told, as then Redis answers.
 * NGX_OK: the waiter will be told, `admitted` if it was done; NGX_DECLINED: it
 * cannot be sent.  `value` is that of a limit, a rate.
 */
ngx_int_t send_key_command(Claim *claim, KeyCommand what, ngx_str_t *value,
                           Waiter *waiter);

ngx_int_t call_order(Node *node, AskCall *call);

} // namespace limit_sliding

#endif
