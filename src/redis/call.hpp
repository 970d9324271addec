/*
 * Copyright (C) the limit_sliding authors
 */

/* Calls that carry asks, and what becomes of asks whose call was not answered
 * by a verdict. */

#ifndef LIMIT_SLIDING_REDIS_CALL_HPP
#define LIMIT_SLIDING_REDIS_CALL_HPP

#include "redis/ask.hpp"

namespace limit_sliding {

/* Asks a call: more of them gain little, and make others wait for Redis. */
constexpr auto kAsksPerCall = 16;

/* A call of the script, or a command for one key. */
struct AskCall : Call {
    AskList asks;
    size_t nasks;
    size_t nclaims;
    size_t numbers; /* of the reply, but for the time */
    bool whole;     /* was sent as EVAL */
    bool asking;    /* is sent after ASKING */
    bool command;   /* is one for a key */
};

/* Fails the call's asks, and frees it. */
void fail_call(Node &node, AskCall &call);

/* Frees a call whose asks are done, and sends those that waited for its end. */
void end_call(Node &node, AskCall &call);

/*
 * In a cluster an ask that did not run where it was sent to becomes due
 * elsewhere, so often and so long that whoever waits for it still does.
 * Returns true if the error is such a redirection; the call is gone then.
 */
bool resend_call(Node &node, AskCall &call, Reply &reply);

/* The same for what was due at a node that could not be connected to, before
 * it was known who has the slot.  The ask is in no list. */
bool resend_due(Ask &ask, Node &node);

} // namespace limit_sliding

#endif
