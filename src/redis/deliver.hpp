/*
 * Copyright (C) the limit_sliding authors
 */

/* Replies to calls, and the requests that learn from them. */

#ifndef LIMIT_SLIDING_REDIS_DELIVER_HPP
#define LIMIT_SLIDING_REDIS_DELIVER_HPP

#include "redis/batch.hpp"

namespace limit_sliding {

void answered(Node &node, Call &call, Reply *reply);
void call_failed(Node *node, AskCall *call);
void add_refusal(RemoteZone *zone, Claim *claim, Verdict *verdict,
                 ngx_msec_t asked);
void ask_done(Redis *redis, Ask *ask);

} // namespace limit_sliding

#endif
