/* Copyright (C) the limit_sliding authors */

/* Calls of the script: its arguments and its replies, which scripts.hpp
 * describes. */

#pragma once

#include "redis/calls/ask.hpp"

namespace limit_sliding {

/* Adds the ask to the call, if the call can take it. */
bool call_takes(AskCall &call, const Ask &ask);

/* Puts the call of its asks into the node's buffer.  Returns false if there is
 * no memory. */
bool call_script(Node &node, AskCall &call);

/* Returns true if the claim is settled: Redis tells no state of it. */
inline bool is_settled(const Claim &claim) {
    return claim.purpose == Purpose::kGiveBack || claim.purpose == Purpose::kCharge;
}

/* Returns true if units of the claim that it rejects are recorded. */
bool records(const Claim &claim);

/* The answer about one key. */
struct PartAnswer {
    bool is_unlimited() const { return own.is_unlimited(); }

    /* True if there is a limit that Redis has counted by. */
    bool is_limited() const { return !own.is_unlimited() && !own.is_blocked(); }

    RemoteState state;
    Override own;      /* the key's */
    Policy policy;     /* of the window in force */
    uint64_t lost;     /* units of a charge that the key cannot owe */
    uint64_t rejected; /* units of the ask, which are recorded where they are rejected */
    int64_t forgotten; /* so many ms ago, and 1; 0: it was not */
};

struct Answer {
    int64_t granted; /* units */
    PartAnswer parts[kClaimsMax];
};

/* Returns true if this array is a reply of the script.  Other numbers are not
 * for the core, which divides by the limit. */
bool is_script_reply(AskCall &call, const Reply &reply);

/* Reads such an array, for the call's asks in their order. */
class ScriptReply {
public:
    explicit ScriptReply(const Reply &reply)
        : now_ms_(reply.numbers[0]), next_(reply.numbers + 1) {}

    void read(const Ask &ask, Answer *answer);

private:
    uint64_t now_ms_;
    const int64_t *next_;
};

/* Describes a key to a request, admitted or not, after `before` units of the
 * call.  Of a claim that is settled nothing but the limit is known. */
Verdict describe_part(const AskPart &part, const PartAnswer &answer, uint32_t before,
                      bool admitted);

} // namespace limit_sliding
