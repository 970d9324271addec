/*
 * Copyright (C) the limit_sliding authors
 */

/* Calls of the script, whose arguments scripts.hpp describes. */

#ifndef LIMIT_SLIDING_REDIS_SCRIPT_CALL_HPP
#define LIMIT_SLIDING_REDIS_SCRIPT_CALL_HPP

#include "redis/call.hpp"

namespace limit_sliding {

/* Counts the ask among those of the call, if the call can take it. */
bool call_takes(AskCall &call, const Ask &ask);

/* Puts the call of its asks into the node's buffer.  NGX_ERROR: there is no
 * memory. */
ngx_int_t call_script(Node &node, AskCall &call);

} // namespace limit_sliding

#endif
