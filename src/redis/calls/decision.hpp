/* Copyright (C) the limit_sliding authors */

/* Decisions: asks that requests wait for, or that count units for nobody. */

#pragma once

#include "redis/calls/ask.hpp"

namespace limit_sliding {

extern const AskKind kDecision;

/* Remembers the verdict of a claim, from a call that was sent at `asked` ms: until its retry time
 * for requests of the key, and without a retry time for requests that another limit rejects. */
void add_refusal(const RemoteZone &zone, const Claim &claim, const Verdict &verdict,
                 ngx_msec_t asked);

} // namespace limit_sliding
