/* Copyright (C) the limit_sliding authors */

/* A request for one key, wherever that is decided. */

#pragma once

#include <optional>

#include "core/own_limit.hpp"
#include "http/api/arguments.hpp"
#include "http/zone.hpp"
#include "ngx/ngx.hpp"
#include "redis/remote_claim.hpp"

namespace limit_sliding {

struct WaitedOrder;

struct KeyRequest {
    ngx_http_request_t *request;
    ngx_uint_t method; /* what is to be done */
    ZoneConf *zone;
    ngx_str_t key;
    RateArgs rate; /* of PUT */
    int64_t cost;  /* of POST: what is charged, or given back if it is negative */

    OwnLimit own; /* the key's */

    /* The one of a key that has none: that of its last request, if a variable said it, or
     * the zone's; kUnlimited if it had none, or that is not known. */
    OwnLimit usual;

    std::optional<uint64_t> ttl_s; /* until its own limit ends */

    Claim claim; /* consumes nothing */
    Verdict verdict;

    /* For a key of this node, whose PUT the request waits for. */
    WaitedOrder *order;

    /* For a key in Redis, whose answer the request waits for. */
    RemoteClaim remote;
    Waiter waiter;
    enum { kLooks, kCommands, kLooksAgain, kAsksTtl } step;

    /* Returns the limit in force. */
    const OwnLimit &limit() const { return own.is_set() ? own : usual; }

    /* Tells whether the history of the key is one of a limit that is known. */
    bool has_basis() const { return own.is_limited() || usual.is_limited(); }

    /* Returns the limit by which its history is shown: where nothing limits it, any limit
     * will do, as most algorithms have used as much whatever the limit. */
    OwnLimit basis() const {
        return own.is_limited()     ? own
               : usual.is_limited() ? usual
                                    : OwnLimit{zone->limit_max(), {}};
    }
};

/* Makes the claim, with no limit yet, and finds the usual one. */
void init_claim(KeyRequest &key);

/* Makes the claim one on the key with a limit, which is a number, or with the usual one.
 * False: no memory. */
bool set_limit(KeyRequest &key, const OwnLimit &limit);
bool set_usual_limit(KeyRequest &key);

/* Charges the claim in this node's memory by hand, or gives back. */
void charge_here(const KeyRequest &key);

/* Forgets the key in this node's memory, in all windows that it is known to have had, as
 * the method asks for.  False: no memory. */
bool forget_here(KeyRequest &key);

/* Returns NGX_DECLINED if the key can be charged, else sends an error. */
ngx_int_t check_chargeable(const KeyRequest &key);

/* Lets the request wait, for what `leave` ends if the client leaves. */
ngx_int_t wait(KeyRequest &key, ngx_http_cleanup_t *cln, ngx_http_cleanup_pt leave);

/* Sends the state of the key, by its verdict. */
ngx_int_t send_key(const KeyRequest &key);

} // namespace limit_sliding
