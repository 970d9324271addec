/* Copyright (C) the limit_sliding authors */

/* Calls of the script: the arguments and the replies that scripts.hpp describes. */

#pragma once

#include "redis/asks/ask.hpp"

namespace limit_sliding {

/* ErrandKind::put: puts the call of the script into the node's buffer. */
bool call_script(Node &node, ErrandCall &call);

/* ErrandKind::answered: handles the reply by AskKind::take_answer() of each ask. */
void script_answered(Node &node, ErrandCall &call, Reply &reply);

/* Returns true if Redis records the units of the claim that it rejects. */
bool records(const Claim &claim);

/* Returns true once a minute, to one worker. */
bool is_due_once(ngx_atomic_t &after_ms);

/* The answer about one key. */
struct PartAnswer : KeyTerms {
    RemoteState state;
    Policy policy;     /* policy of the window in force */
    uint64_t lost;     /* units of a charge that the key cannot owe */
    uint64_t rejected; /* rejected units of the ask, if records(); else 0 */
    int64_t others;    /* with "sync=", the sum of the totals of other nodes */
    int64_t total;     /* with "sync=", the total of this node that Redis has counted */
    int64_t forgotten; /* 1 plus the ms since the key was forgotten, 0: it was not forgotten; with
                          "sync=", 1 more if this is the first report, and 0 if it is not */

    int64_t counter[kCounterValues]; /* RemoteState::values of a counter */
};

struct Answer {
    int64_t granted; /* granted units */
    PartAnswer parts[kClaimsMax];
};

/* Reads a reply, an array that begins with a number, for the call's asks in their order.  The reply
 * must live as long as the answers, which must not be moved. */
class ScriptReply {
public:
    explicit ScriptReply(const Reply &reply) : reply_(reply) {}

    /* Takes the next number; INT64_MIN: there is none. */
    int64_t take();

    /* Takes the terms of the next key.  Returns false if no script replies so. */
    bool take(KeyTerms *terms) { return terms->read(reply_.numbers, reply_.n, &next_); }

    /* Returns false if this is no answer to the ask, the last one of the call or not.  The core
     * divides by the limit, and so must not see other numbers. */
    bool read(const Ask &ask, bool is_last, Answer *answer);

private:
    bool read_override(const AskPart &part, PartAnswer *answer);
    bool read_values(const AskPart &part, int64_t granted, PartAnswer *answer);

    const Reply &reply_;
    size_t next_ = 1;
};

/* Logs and counts a reply of the type error, which answers no errand. */
void note_error(Node &node, Reply &reply);

/* Remembers the override of a claim's key, or that it is malformed. */
void learn_override(const RemoteZone &zone, const Claim &claim, const Override &own,
                    bool is_malformed);

/* Describes a key to a request that is not admitted, after `before` units of the call.  For a
 * settlement, only the limit is known. */
Verdict describe_part(const AskPart &part, const PartAnswer &answer, uint32_t before);

} // namespace limit_sliding
