/*
 * Copyright (C) the limit_sliding authors
 */

/* What is due at a node, and the calls that carry it. */

#ifndef LIMIT_SLIDING_REDIS_BATCH_HPP
#define LIMIT_SLIDING_REDIS_BATCH_HPP

#include "redis/node.hpp"

namespace limit_sliding {

/* Sends what is due. */
void flush_due(Node &node);

/* Fails what is due, if it cannot be sent to another node. */
void fail_due(Node &node);

} // namespace limit_sliding

#endif
