/* Copyright (C) the limit_sliding authors */

/* An API request for one key, in this node's memory or in Redis. */

#pragma once

#include <optional>

#include "core/policy/override.hpp"
#include "http/conf/zone.hpp"
#include "http/json/arguments.hpp"
#include "ngx/ngx.hpp"
#include "redis/calls/remote_claim.hpp"

namespace limit_sliding {

struct WaitedWrite;

struct KeyRequest {
    ngx_http_request_t *request;
    ngx_uint_t method; /* the operation, which is GET once a ban is lifted */
    ZoneConf *zone;
    ngx_str_t key;
    RateArgs rate; /* valid for PUT */
    int64_t cost;  /* valid for POST: units to charge, or to refund if negative */

    Override own; /* override of the key */

    /* The limit of a key without an override: the limit that a variable set in its last request,
     * or the limit of the zone; kUnlimited if there is none, or if it is not known. */
    Override usual;

    std::optional<uint64_t> ttl_s; /* s until the override expires */

    Claim claim; /* consumes nothing */
    Verdict verdict;

    /* For a key in this node's memory: the API write of a PUT. */
    WaitedWrite *write;

    /* For a key in Redis: the claim, the wait for the reply, and the step of the request. */
    RemoteClaim remote;
    Waiter waiter;
    enum { kLooks, kCommands, kLooksAgain, kAsksTtl } step;

    /* Returns the limit in force. */
    const Override &limit() const { return own.is_set() ? own : usual; }

    /* Returns true if a limit of the key is known. */
    bool has_basis() const { return own.is_limited() || usual.is_limited(); }

    /* Returns the limit by which the history is shown.  A key without a known limit gets the
     * largest one: in most algorithms, the used units do not depend on the limit. */
    Override basis() const {
        return own.is_limited()     ? own
               : usual.is_limited() ? usual
                                    : Override{zone->limit_max(), {}};
    }
};

/* Answers a request for a key in Redis.  Undefined in builds without hiredis. */
ngx_int_t handle_in_redis(KeyRequest &key);

/* Initializes the claim without a limit, and finds the usual limit. */
void init_claim(KeyRequest &key);

/* Set the limit of the claim, a number or the usual limit.  Return false if out of memory. */
bool set_limit(KeyRequest &key, const Override &limit);
bool set_usual_limit(KeyRequest &key);

/* Charges the cost in this node's memory, or refunds a negative cost.  Returns false if there is no
 * memory. */
bool charge_here(KeyRequest &key);

/* Deletes facts about the key in this node's memory, in all windows that it is known to have had,
 * as far as the method requires.  Returns false if there is no memory. */
bool forget_here(KeyRequest &key);

/* Returns NGX_DECLINED if the key can be charged, else sends an error. */
ngx_int_t check_chargeable(const KeyRequest &key);

/* Send the state of the key, by the verdict or by the count of this node. */
ngx_int_t send_key(const KeyRequest &key);
ngx_int_t send_count(KeyRequest &key);

} // namespace limit_sliding
