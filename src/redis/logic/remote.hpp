/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/policy.hpp"

namespace limit_sliding {

/* The state of a key before the script granted anything, as its reply tells. */
struct RemoteState {
    uint64_t now_ms; /* of the server's clock */
    uint64_t limit;  /* in force, 1 .. kRemoteMax */

    /* There are remote_values() of them.  A counter has the requests in each of
     * precision + 1 parts of the window, the oldest first.  A fixed window has
     * its requests.  A bucket has what is used x window_ms.  A log has its
     * requests, the time in ms of the event whose expiry frees the first of
     * them, and that of the event whose expiry makes room for the first request
     * that was rejected; negative: there is none. */
    const int64_t *values;

    /* Describes the key to a request of this cost, as Claim::describe() would
     * after the same history.  The call has granted `granted` requests of the
     * same cost before this one; `admitted` tells whether it was granted, too,
     * and `look` that none consumed anything. */
    Verdict describe(const Policy &policy, uint64_t cost, uint32_t granted, bool admitted,
                     bool look) const;
};

/* Returns how many values the script has for a key of this policy. */
unsigned remote_values(const Policy &policy);

} // namespace limit_sliding
