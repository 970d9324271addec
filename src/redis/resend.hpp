/*
 * Copyright (C) the limit_sliding authors
 */

/* Asks of a cluster that did not run where they were sent to: they become due
 * elsewhere, so often and so long that whoever waits for them still does. */

#ifndef LIMIT_SLIDING_REDIS_RESEND_HPP
#define LIMIT_SLIDING_REDIS_RESEND_HPP

#include "redis/ask_call.hpp"

namespace limit_sliding {

/* Returns true if the error is a redirection that is followed; the call is gone
 * then. */
bool resend_call(Node &node, AskCall &call, Reply &reply);

/* The same for what was due at a node that could not be connected to, before
 * it was known who has the slot.  The ask is in no list. */
bool resend_due(Ask &ask, Node &node);

} // namespace limit_sliding

#endif
