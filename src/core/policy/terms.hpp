/* Copyright (C) the limit_sliding authors */

/* The terms of a key: what its limit means.  Here alone the special limits "off" and "0" are
 * interpreted. */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/policy/claim.hpp"
#include "core/policy/override.hpp"
#include "core/policy/policy.hpp"

namespace limit_sliding {

enum class Terms : uint8_t {
    kLimited = 0, /* a limit admits requests or rejects them */
    kBlocked,     /* "0": all requests are rejected */
    kUnlimited    /* "off": all requests are admitted, and none is counted */
};

/* Returns the terms of a key with this override, or without one. */
inline Terms terms_of(const Override &own) {
    return own.limit == kLimitOff       ? Terms::kUnlimited
           : own.limit == kLimitBlocked ? Terms::kBlocked
                                        : Terms::kLimited;
}

/* Returns true if an override is set, and is a number. */
inline bool has_number(const Override &own) {
    return own.is_set() && terms_of(own) == Terms::kLimited;
}

/* Returns the limit in force: that of the override, if it is a number, else `limit`. */
inline uint64_t limit_under(const Override &own, uint64_t limit) {
    return has_number(own) ? own.limit : limit;
}

/* Returns the standing of a claim that Redis has decided under these terms. */
inline Standing standing_of(Terms terms) {
    return terms == Terms::kLimited   ? Standing::kGiven
           : terms == Terms::kBlocked ? Standing::kBlocked
                                      : Standing::kUnlimited;
}

/* Returns a verdict without excess, wait and delay. */
inline Verdict verdict_of(uint64_t limit, uint64_t remaining, uint64_t reset_ms = 0) {
    Verdict verdict = {};
    verdict.limit = limit;
    verdict.remaining = remaining;
    verdict.reset_ms = reset_ms;
    return verdict;
}

/* Returns the verdict about a key without a limit: nothing of this limit is used. */
inline Verdict unlimited_verdict(const Policy &policy, uint64_t limit) {
    return verdict_of(limit, policy.capacity(limit));
}

/* Returns the verdict about a blocked key: that of a cost above the limit. */
inline Verdict blocked_verdict(uint64_t cost) {
    Verdict verdict = {};
    verdict.excess = std::min(cost, kCostMax) * 1000;
    verdict.retry_after_ms = kNever;
    return verdict;
}

/* Memory that a claim with an override may point to. */
struct TermsRoom {
    Policy policy;   /* of a window that is not the zone's */
    Verdict verdict; /* of a key that is blocked, or has no limit */
};

/* Returns true if the claim of a key with this override, in a zone with this policy, needs a
 * TermsRoom. */
inline bool needs_room(const Override &own, const Policy &policy) {
    return terms_of(own) != Terms::kLimited || is_own_window(policy, own.window);
}

/* Applies the override of a key, which is set, to a claim of a zone with this policy: gives the
 * claim the window and the limit, or decides the claim if the override is "off" or "0".  A ban
 * that has decided the claim stays.  The room may be nullptr unless needs_room(), and must live as
 * long as the claim. */
Terms apply_override(Claim &claim, const Policy &policy, const Override &own, TermsRoom *room);

} // namespace limit_sliding
