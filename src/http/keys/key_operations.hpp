/* Copyright (C) the limit_sliding authors */

/* An API request for one key, in this node's memory or in Redis. */

#pragma once

#include <initializer_list>
#include <optional>

#include "core/policy/override.hpp"
#include "http/conf/zone_conf.hpp"
#include "http/json/arguments.hpp"
#include "http/overrides/overridden_claim.hpp"
#include "http/response/context.hpp"
#include "ngx/ngx.hpp"
#include "redis/errands/remote_claim.hpp"

namespace limit_sliding {

struct WaitedWrite;

struct KeyRequest {
    ngx_http_request_t *request;
    ngx_uint_t method; /* the operation, which is GET once no change is left to be made */
    ngx_uint_t status; /* status of the answer with the key's state */
    ZoneConf *zone;
    ngx_str_t key;
    RateArgs rate;     /* valid for PUT */
    ChargeArgs charge; /* valid for POST */

    Override own; /* override of the key */

    /* The limit of a key without an override: the limit that a variable set in its last request,
     * or the limit of the zone; not set if it is not known. */
    Override usual;

    std::optional<uint64_t> ttl_s; /* s until the override expires */
    bool is_ttl_denied;            /* Redis has refused to tell it */

    Claim claim;           /* consumes nothing */
    OverriddenParts parts; /* of the claim */
    Verdict verdict;
    u_char retry_after[kSecondsDigits]; /* room for the digits of Retry-After */

    /* For a key in this node's memory: the API write of a PUT. */
    WaitedWrite *write;

    /* For a key in Redis: the claim, the wait for the reply, and the step of the request. */
    RemoteClaim remote;
    Waiter waiter;
    enum { kLooks, kCommands, kForgetsUsual, kLooksAgain, kAsksTtl } step;

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

/* Sets the limit of the claim to the usual limit. */
void set_usual_limit(KeyRequest &key);

/* Charges the cost in this node's memory, or refunds a negative cost.  Returns false if the zone is
 * full and refuses the key. */
bool charge_here(KeyRequest &key);

/* Charges the cost of a take in this node's memory if the limit has room, else rejects it.  Returns
 * false if there is no memory. */
bool take_here(KeyRequest &key);

/* Decides a take by the limit "off" or "0" or the ban of the key, as such a request is decided.
 * Then nothing is left to be charged.  Returns false if there is no memory. */
bool decide_take(KeyRequest &key);

/* Rejects a take: the answer has limit_sliding_status, and Retry-After for a wait in ms other than
 * kNever.  Returns false if there is no memory. */
bool reject_take(KeyRequest &key, uint64_t wait_ms);

/* Deletes the history of the claim's key in this node's memory, in the window of the claim, and
 * the refusals, leases and unsent units of the key: DELETE deletes all of them, POST only the
 * refusals, and other methods keep the history and unsent units. */
void forget_claim(const ZoneConf &zone, const Claim &claim, ngx_uint_t method);

/* Calls forget_claim() for the key in each of these windows.  Afterwards the claim has the last
 * window, and points to `parts`.  DELETE also deletes the key from the offenders. */
void forget_windows(const ZoneConf &zone, Claim &claim, OverriddenParts &parts,
                    std::initializer_list<Window> windows, ngx_uint_t method);

/* Deletes facts about the key in this node's memory, in all windows that the key is known to have
 * had, as far as the method requires. */
void forget_here(KeyRequest &key);

/* Returns NGX_DECLINED if the key can be charged, else sends an error. */
ngx_int_t check_chargeable(const KeyRequest &key);

/* Send the state of the key, by the verdict or by the count of this node. */
ngx_int_t send_key(const KeyRequest &key);
ngx_int_t send_count(KeyRequest &key);

} // namespace limit_sliding
