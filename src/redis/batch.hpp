/*
 * Copyright (C) the limit_sliding authors
 */

/* What is due at a node, and the calls that carry it. */

#ifndef LIMIT_SLIDING_REDIS_BATCH_HPP
#define LIMIT_SLIDING_REDIS_BATCH_HPP

#include "redis/ask.hpp"

namespace limit_sliding {

/* Asks a call: more of them gain little, and make others wait for Redis. */
constexpr auto kAsksPerCall = 16;

/* A call of the script, or of an order. */
struct AskCall : Call {
    ngx_queue_t asks;
    ngx_uint_t nasks;
    ngx_uint_t nclaims;
    ngx_uint_t numbers;  /* that it returns */
    unsigned whole : 1;  /* sent as EVAL */
    unsigned asking : 1; /* after ASKING */
    unsigned order : 1;  /* carries one */
};

void flush_due(Node &node);
void make_due(Ask *ask, Node *to);
void fail_due(Node &node);

} // namespace limit_sliding

#endif
