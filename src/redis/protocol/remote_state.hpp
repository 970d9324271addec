/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/facts/debt_payment.hpp"
#include "core/policy/describe_usage.hpp"
#include "core/policy/policy.hpp"
#include "core/policy/terms.hpp"
#include "core/rules/counter_kinds.hpp"

namespace limit_sliding {

/* The largest time of Redis's clock in ms.  No product with the parts of a window overflows. */
constexpr int64_t kRemoteTimeMax = INT64_MAX / 64;

/* The least time in ms for which a refusal holds: a quarter of the shortest window. */
constexpr uint64_t kRefusedMs = kWindowMinMs / 4;

/* The time by Redis's clock at which a claim was granted, and the state then, for a refund. */
struct Taken {
    uint64_t now_ms;
    uint64_t values[2]; /* the first two RemoteState::values, see RemoteState::taken() */
    uint64_t window;    /* Window::code(); 0: the window was the zone's */
};

/* The state of a key before the script granted units, from its reply: history and debt. */
struct RemoteState {
    uint64_t now_ms; /* time of the server's clock */
    uint64_t limit;  /* limit in force, 1 .. kRemoteMax */

    /*
     * The remote_values() values of the history:
     *   counter  the number n of parts of its window; the number of the newest part, which is
     *            time x n / window; the time in ms at which the state ends, 0 if its counts tell;
     *            and the requests in each of n + 1 parts, the oldest first
     *   fixed    the requests of the window
     *   bucket   the whole used requests, and the rest of another one x window_ms
     *   log      the requests; the time in ms of the event that frees the first request when it
     *            expires, and of the event that, with the debt, makes room for the first rejected
     *            request when it expires; negative: there is no such event
     */
    const int64_t *values;

    DebtPayment debt = {};

    /* Returns the values that the script needs to refund a claim that was granted after other
     * claims of this call had consumed `before` units. */
    Taken taken(const Policy &policy, uint64_t before) const;

    /* Returns the end, in ms of the server's clock, of the part of the window in which the script
     * records granted units.  A fixed window has one part. */
    uint64_t part_ends_ms(const Policy &policy) const;

    /* Returns true if the script can have granted so many units: it never grants more than the
     * history and the debt have left of the capacity. */
    bool has_room(const Policy &policy, Wide units) const;

    /* Describes the key for a request of this cost, as Claim::describe() would after the same
     * history.  The call has granted `granted` requests of the same cost before this one, and
     * this one if `admitted`; with `look`, none has consumed.  If this request is not admitted,
     * the call may have recorded `rejected` units. */
    Verdict describe(const Policy &policy, uint64_t cost, uint32_t granted, bool admitted,
                     bool look, uint64_t rejected = 0) const;

    /* Returns for how many ms Redis need not be asked about the key after this verdict, 0 if the
     * verdict admits: until the key admits, and for kRefusedMs at least, unless freed units would
     * go unused.  Under a high limit, a unit is free before the refusal arrives, and all nodes
     * would ask all the time. */
    uint64_t refused_ms(const Policy &policy, const Verdict &verdict) const;

    /* Returns the used requests, rounded up as by Policy::used(), after the script has granted
     * this many units. */
    uint64_t used_after(const Policy &policy, uint64_t units) const;

private:
    /* Returns the longest pause in ms between two asks in which no freed unit goes unused. */
    uint64_t patience_ms(const Policy &policy, const Verdict &verdict) const;
};

/* The limit and the debt of a key, from the reply of a script. */
struct KeyTerms {
    Override own;      /* override of the key */
    Terms terms;       /* its terms */
    bool is_malformed; /* the override is malformed, and the requested limit was in force */
    bool is_foreign;   /* the state has a format of another version, and was not decided */
    int64_t owed;      /* units of the debt; 0: the key owes nothing */
    int64_t owed_from; /* DebtPayment::from, which is_remote_debt() has to check */

    /* Reads the terms, if there are any, from element `next` of n elements of a reply on, and adds
     * their number to `next`.  Returns false if no script replies so. */
    bool read(const int64_t *elements, size_t n, size_t *next);
};

/* Returns the number of values of a key, given the first value. */
inline unsigned remote_values(const Policy &policy, int64_t first) {
    switch (policy.algorithm) {
    case Algorithm::kCounter:
        return static_cast<unsigned>(std::clamp<int64_t>(first, 0, kPartsMax)) + 4;
    case Algorithm::kLog:
        return 3;
    case Algorithm::kFixed:
        return 1;
    default:
        return 2;
    }
}

/* Returns the parts of a counter's window, for most keys with this limit. */
inline uint64_t counter_parts_of(const Policy &policy, uint64_t limit) {
    return policy.precision == 0 ? counter_parts(limit) : policy.precision;
}

/* The most values of a counter. */
constexpr unsigned kCounterValues = 4 + kPartsMax;

/* Reads a counter's state, which is empty if the key has none, from a reply that the script made
 * at this time under this limit.  Returns false if the script cannot have written the state. */
bool read_counter(const Policy &policy, uint64_t limit, uint64_t now_ms, std::string_view state,
                  int64_t (&values)[kCounterValues]);

/* Returns true if the script can have returned these remote_values() values under this limit, at
 * this time of the server's clock, kRemoteTimeMax at most, so that describe() can be called. */
bool are_remote_values(const Policy &policy, uint64_t limit, uint64_t now_ms,
                       const int64_t *values);

/* Returns true if the script can have returned these units of a debt, and this time from which
 * windows pay it. */
bool is_remote_debt(const Policy &policy, int64_t units, int64_t from);

} // namespace limit_sliding
