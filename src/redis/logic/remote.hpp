/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/policy.hpp"

namespace limit_sliding {

/* What the script's reply says of a key, before it granted anything. */
struct RemoteState {
    uint64_t now_ms; /* of the server's clock */
    uint32_t limit;  /* in force, 1 .. kLimitMax */

    /*
     * As many as remote_values() says.  Of a counter: requests in each part of
     * the window, precision + 1 of them, the oldest first.  Of fixed windows:
     * requests.  Of buckets: what is used x window_ms.  Of a log: requests, the
     * time in ms of the event whose expiry frees the first of them, and that of
     * the event whose expiry makes room for the first request that was
     * rejected; negative: there is none.
     */
    const int64_t *values;

    /* Describes the key to a request of this cost, as Claim::describe() would
     * after the same history.  `granted` is how many requests of the same cost
     * the call had granted before this one, `admitted` whether this one was,
     * too, `look` that none consumed anything. */
    Verdict describe(const Policy &policy, uint32_t cost, uint32_t granted, bool admitted,
                     bool look) const;
};

/* Returns how many values the script has for a key of this policy. */
unsigned remote_values(const Policy &policy);

} // namespace limit_sliding
