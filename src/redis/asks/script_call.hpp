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

/* A reply, an array that begins with a number, which is read from its second element on. */
struct ScriptReply {
    const Reply &reply;
    size_t next = 1;

    /* Takes the next number; INT64_MIN: there is none. */
    int64_t take();

    /* Reads the answer to an ask of the call, the last one or not.  Returns false if this is no
     * answer to it: the core divides by the limit, and so must not see other numbers.  The reply
     * must live as long as the answer, which must not be moved. */
    bool read(const Ask &ask, bool is_last, Answer *answer);
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
