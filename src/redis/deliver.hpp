/* Copyright (C) the limit_sliding authors */

/* Replies to calls, and the requests that learn from them. */

#pragma once

#include "redis/ask.hpp"

namespace limit_sliding {

/* The handler of the script's calls. */
void script_answered(Node &node, Call &call, Reply *reply);

/* Remembers the verdict of a claim, asked for at that time, for those who ask
 * until its retry time; without one, for those whom another limit rejects. */
void add_refusal(const RemoteZone &zone, const Claim &claim, const Verdict &verdict,
                 ngx_msec_t asked);

} // namespace limit_sliding
