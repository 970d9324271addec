/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_REDIS_ASK_CALL_HPP
#define LIMIT_SLIDING_REDIS_ASK_CALL_HPP

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

} // namespace limit_sliding

#endif
