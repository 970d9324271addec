/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

#include "core/policy/policy.hpp"
#include "redis/protocol/debt_schedule.hpp"

namespace limit_sliding {

/* For how long a refusal holds at least, in ms: a quarter of the shortest window. */
constexpr uint64_t kRefusedMs = kWindowMinMs / 4;

/* When a claim was taken, by the clock of Redis, and from which state. */
struct Taken {
    uint64_t now_ms;
    uint64_t values[2]; /* the first two of RemoteState */
    uint64_t window;    /* Window::code() if it was not the zone's, else 0 */
};

/* The state of a key before the script granted anything, as its reply tells: the values of its
 * history, which knows nothing of the debt. */
struct RemoteState {
    uint64_t now_ms; /* of the server's clock */
    uint64_t limit;  /* in force, 1 .. kRemoteMax */

    /* There are remote_values() of them.  A counter has n, the number of parts
     * of its window; that of the newest part, time x n / window; the time in ms
     * when nothing counts any more, or 0 if that follows from its requests; and
     * these, in each of n + 1 parts, the oldest first.  A fixed window has its requests.
     * A bucket has the whole requests that are used, and the rest of another one
     * x window_ms.  A log has its requests, the time in ms of the event whose
     * expiry frees the first of them, and that of the event whose expiry makes
     * room for the first request that was rejected, with the debt, if there is one; negative:
     * there is none. */
    const int64_t *values;

    DebtSchedule debt = {};

    /* Returns the values that the script needs to refund a claim that was granted after
     * other claims of this call had taken `before`. */
    Taken taken(const Policy &policy, uint64_t before) const;

    /* Returns when the part of the window ends in which the script records granted
     * units, in ms of the server's clock.  A fixed window has one part. */
    uint64_t part_ends_ms(const Policy &policy) const;

    /* Describes the key to a request of this cost, as Claim::describe() would
     * after the same history.  The call has granted `granted` requests of the
     * same cost before this one; `admitted` tells whether it was granted, too,
     * and `look` that none consumed anything.  If it was not, the call may have
     * recorded units that were `rejected`. */
    Verdict describe(const Policy &policy, uint64_t cost, uint32_t granted, bool admitted,
                     bool look, uint64_t rejected = 0) const;

    /* Returns for how many ms the key need not be asked about after this verdict,
     * 0 if that admits: until it admits, and for kRefusedMs at least.  At a high
     * limit a unit is free before the refusal arrives, and all nodes would ask
     * all the time.  Units that become free meanwhile stay free: the time is
     * shorter where they would be lost. */
    uint64_t refused_ms(const Policy &policy, const Verdict &verdict) const;

    /* Returns the whole requests used once the script has granted so many units,
     * rounded up, as Policy::used() does. */
    uint64_t used_after(const Policy &policy, uint64_t units) const;

private:
    /* Returns for how many ms nothing is lost if nobody asks. */
    uint64_t patience_ms(const Policy &policy, const Verdict &verdict) const;
};

/* Returns how many values the script has for a key of this policy, whose first
 * one is given; or the most that it can have. */
unsigned remote_values(const Policy &policy, int64_t first);
unsigned remote_values_max(const Policy &policy);

/* Returns true if the values are such as the script tells under this limit, at this time
 * of the server's clock, so that describe() can be called.  There are remote_values() of
 * them, and the time is INT64_MAX / 2 at most. */
bool are_remote_values(const Policy &policy, uint64_t limit, uint64_t now_ms,
                       const int64_t *values);

/* The same for the units of a debt, and the time from which it is paid. */
bool is_remote_debt(const Policy &policy, int64_t units, int64_t from);

} // namespace limit_sliding
