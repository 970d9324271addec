/* Copyright (C) the limit_sliding authors */

/* A request for one key, wherever that is decided. */

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
    ngx_uint_t method; /* the operation */
    ZoneConf *zone;
    ngx_str_t key;
    RateArgs rate; /* of PUT */
    int64_t cost;  /* of POST: the units to charge, or to refund if it is negative */

    Override own; /* the key's */

    /* The one of a key that has none: that of its last request, if a variable said it, or
     * the zone's; kUnlimited if it had none, or that is not known. */
    Override usual;

    std::optional<uint64_t> ttl_s; /* until its override ends */

    Claim claim; /* consumes nothing */
    Verdict verdict;

    /* For a key of this node; the request waits for its PUT. */
    WaitedWrite *order;

    /* For a key in Redis; the request waits for its reply. */
    RemoteClaim remote;
    Waiter waiter;
    enum { kLooks, kCommands, kLooksAgain, kAsksTtl } step;

    /* Returns the limit in force. */
    const Override &limit() const { return own.is_set() ? own : usual; }

    /* Tells whether the history of the key is one of a limit that is known. */
    bool has_basis() const { return own.is_limited() || usual.is_limited(); }

    /* Returns the limit by which its history is shown: where nothing limits it, any limit
     * will do, as most algorithms have used as much whatever the limit. */
    Override basis() const {
        return own.is_limited()     ? own
               : usual.is_limited() ? usual
                                    : Override{zone->limit_max(), {}};
    }
};

/* Makes the claim, with no limit yet, and finds the usual one. */
void init_claim(KeyRequest &key);

/* Makes the claim one on the key with a limit, which is a number, or with the usual one.
 * False: no memory. */
bool set_limit(KeyRequest &key, const Override &limit);
bool set_usual_limit(KeyRequest &key);

/* Charges the claim in this node's memory by hand, or gives back. */
void charge_here(const KeyRequest &key);

/* Forgets the key in this node's memory, in all windows that it is known to have had, as
 * the method asks for.  False: no memory. */
bool forget_here(KeyRequest &key);

/* Returns NGX_DECLINED if the key can be charged, else sends an error. */
ngx_int_t check_chargeable(const KeyRequest &key);

/* Lets the request wait; `leave` ends the wait if the client leaves. */
ngx_int_t wait(KeyRequest &key, ngx_http_cleanup_t *cln, ngx_http_cleanup_pt leave);

/* Sends the state of the key, by its verdict. */
ngx_int_t send_key(const KeyRequest &key);

} // namespace limit_sliding
