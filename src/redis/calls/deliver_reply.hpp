/* Copyright (C) the limit_sliding authors */

/* Replies to calls, and the requests that learn from them. */

#pragma once

#include "redis/calls/ask.hpp"

namespace limit_sliding {

/* The handler of the script's calls. */
void script_answered(Node &node, Call &call, Reply *reply);

/* Remembers the verdict of a claim, asked for at that time, for requests until its retry
 * time; without one, for requests that another limit rejects. */
void add_refusal(const RemoteZone &zone, const Claim &claim, const Verdict &verdict,
                 ngx_msec_t asked);

} // namespace limit_sliding
