/*
 * Copyright (C) the limit_sliding authors
 */

/* Asks that did not run where they were sent to. */

#ifndef LIMIT_SLIDING_REDIS_RESEND_HPP
#define LIMIT_SLIDING_REDIS_RESEND_HPP

#include "redis/batch.hpp"

namespace limit_sliding {

/* NGX_OK: the call's ask is due elsewhere, and the call is gone; NGX_DECLINED:
 * the error is no redirection, or has been followed far enough. */
ngx_int_t redirect_call(Node *node, AskCall *call, Reply *reply);

/* For what was due at a node that could not be connected to, before it was
 * known who has its slot.  Returns 1 if another one is tried. */
ngx_uint_t redirect_due(Ask *ask, Node *node);

} // namespace limit_sliding

#endif
