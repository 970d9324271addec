/* Copyright (C) the limit_sliding authors */

/* An API request for one key, in this node's memory or in Redis. */

#pragma once

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

    bool is_ttl_denied; /* Redis has refused to tell when the override expires */

    u_char retry_after[kSecondsDigits]; /* room for the digits of Retry-After */

    WaitedWrite *write;                 /* a PUT of a key in this node's memory */
    ngx_int_t (*then)(KeyRequest &key); /* continues the request once the call is done */
};

/* Returns the ban of the key, which has no time left if there is none. */
Ban ban_of(const KeyRequest &key);

/* Sends the state of the key, by the decided claim. */
ngx_int_t send_key(const KeyRequest &key);

} // namespace limit_sliding
