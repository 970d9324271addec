/* Copyright (C) the limit_sliding authors */

/* An API request for one key, in this node's memory or in Redis. */

#pragma once

#include <optional>

#include "http/calls/key_call.hpp"
#include "http/json/arguments.hpp"
#include "http/response/context.hpp"

namespace limit_sliding {

struct WaitedWrite;

struct KeyRequest : KeyCall {
    ngx_http_request_t *request;
    ngx_uint_t method; /* the operation, which is GET once no change is left to be made */
    ngx_uint_t status; /* status of the answer with the key's state */
    bool takes;        /* valid for POST: the units are taken, not charged */
    RateArgs rate;     /* valid for PUT */

    std::optional<uint64_t> ttl_s; /* s until the override expires */
    bool is_ttl_denied;            /* Redis has refused to tell it */

    u_char retry_after[kSecondsDigits]; /* room for the digits of Retry-After */

    /* For a key in this node's memory: the API write of a PUT. */
    WaitedWrite *write;

    /* For a key in Redis: continues the request after the call. */
    ngx_int_t (*then)(KeyRequest &key);
};

/* Answers a request for a key in Redis.  Undefined in builds without hiredis. */
ngx_int_t handle_in_redis(KeyRequest &key);

/* Decides a take by the limit "off" or "0" or the ban of the key, as such a request is decided.
 * Then nothing is left to be charged.  Returns false if there is no memory. */
bool decide_take(KeyRequest &key);

/* Rejects a take: the answer has limit_sliding_status, and Retry-After for a wait in ms other than
 * kNever.  Returns false if there is no memory. */
bool reject_take(KeyRequest &key, uint64_t wait_ms);

/* Returns NGX_DECLINED if the key can be charged, else sends an error. */
ngx_int_t check_chargeable(const KeyRequest &key);

/* Send the state of the key, by the decided claim or by the count of this node. */
ngx_int_t send_key(const KeyRequest &key);
ngx_int_t send_count(KeyRequest &key);

} // namespace limit_sliding
