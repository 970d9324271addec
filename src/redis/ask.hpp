/*
 * Copyright (C) the limit_sliding authors
 */

/* What requests ask Redis. */

#ifndef LIMIT_SLIDING_REDIS_ASK_HPP
#define LIMIT_SLIDING_REDIS_ASK_HPP

#include "redis/key_command.hpp"
#include "redis/redis.hpp"
#include "redis/waiters.hpp"

namespace limit_sliding {

/* In place of the slot of keys that have several. */
constexpr auto kMixedSlots = -1;

/* Nodes that an ask is sent to before it fails. */
constexpr auto kHopsMax = 5;

/* What is asked of one key. */
struct AskPart {
    Claim claim;
    RemoteZone *zone;
    ngx_str_t key;     /* in Redis */
    ngx_int_t slot;    /* of a cluster */
    ngx_uint_t index;  /* among the request's */
    ngx_uint_t leased; /* units of a bucket */
    ngx_uint_t held;   /* of the call: there are some left here */
    uint64_t taken_ms; /* of what is given back, */
    uint64_t taken_of; /* see scripts.h */
};

/* A request's claims, and who waits for them.  Is in `due`, in a call, or, if
 * it became due while in a call, in that one until its reply. */
struct Ask {
    ngx_rbtree_node_t node; /* key: what is claimed */
    Redis *redis;
    Node *to;                /* where it is due, or was asked */
    ngx_queue_t queue;       /* due, or of a call */
    ngx_queue_t waiters;     /* for the next call */
    ngx_queue_t asked;       /* for the one under way */
    ngx_uint_t units;        /* for the next call, those nobody waits for too */
    ngx_uint_t asked_units;  /* of the call under way, with these: */
    ngx_uint_t leased_units; /* beyond what is waited for */
    ngx_msec_t since;        /* asked first */
    ngx_uint_t hops;         /* since then */
    unsigned in_call : 1;
    unsigned asking : 1; /* at a slot's next node */
    unsigned shared : 1; /* is among the client's asks */
    KeyCommand order;    /* such an ask has one part, and a call of its own */
    ngx_str_t value;     /* of the order */
    ngx_int_t slot;      /* of all parts, or kMixedSlots */

    ngx_uint_t nparts;
    AskPart parts[1];
};

/*
 * Asks for all of the claims or none, once they are not refused as they are
 * known to be.  NGX_OK: the waiter, if there is one, will be told;
 * NGX_DECLINED: Redis is known not to answer.  Claims of one Redis, 1 to
 * kClaimsMax, each with its RemoteClaim.
 */
ngx_int_t ask_redis(Redis *redis, Claim *claims, ngx_uint_t nclaims,
                    Waiter *waiter);

u_char *write_key(Redis *redis, RemoteClaim *remote, u_char *p);
Ask *find_ask(Redis *redis, uint64_t hash);
Ask *create_ask(Redis *redis, Claim *claims, ngx_uint_t nclaims);
Ask *alloc_ask(Redis *redis, ngx_uint_t nparts, size_t len);
void share_ask(Ask *ask, uint64_t hash);

} // namespace limit_sliding

#endif
