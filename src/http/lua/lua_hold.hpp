/* Copyright (C) the limit_sliding authors */

/*
 * Units in flight that Lua holds.  The units are given back by Lua, or when the request ends in
 * which Lua took them, even if Redis is still being asked about them; without a request, when Lua
 * has no reference to the hold any more.  A hold is freed once neither Lua nor a request refers to
 * it.
 */

#pragma once

#include "core/holds/hold.hpp"
#include "http/lua/lua_claim.hpp"
#include "ngx/containers.hpp"

/* The C name is that of the border. */
struct limit_sliding_hold {
    limit_sliding::Hold units;
    uint64_t hash;                           /* of the key */
    bool is_dropped;                         /* Lua has no reference to the hold */
    bool is_listed;                          /* the hold is among the holds of its request */
    ngx_queue_t link;                        /* valid if is_listed */
    limit_sliding::RemoteClaim *remote;      /* units of Redis; nullptr: of this node */
    limit_sliding_wait *wait;                /* wait for the reply of Redis; else nullptr */
    void (*leave)(limit_sliding_hold &hold); /* ends that wait */
};

namespace limit_sliding {

/* Creates a hold without units for the call.  The hold ends with the request, which may be nullptr.
 * Returns nullptr if there is no memory. */
limit_sliding_hold *create_hold(const LuaCall &call, ngx_http_request_t *r);

/* Gives back the units of a hold to which Lua has no reference, and frees the hold. */
void destroy_hold(limit_sliding_hold &hold);

} // namespace limit_sliding
