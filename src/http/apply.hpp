/* Copyright (C) the limit_sliding authors */

/* Puts verdicts in force: answers requests, and logs. */

#pragma once

#include "http/configuration.hpp"
#include "http/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Adds the key of a claim that rejected to its zone's offenders, if any. */
void add_offender(ngx_http_request_t *r, const Claim &claim);

/*
 * Answers the request, which must not be touched after that; returns what the
 * handler of a phase is to return.  ctx.described is the claim that rejected.
 */
ngx_int_t reject(ngx_http_request_t *r, const LocConf &conf, Context &ctx);

/* Logs that a claim holds the request back, or would do so. */
void note_delay(ngx_http_request_t *r, const LocConf &conf, Context &ctx, const Claim &claim);

} // namespace limit_sliding
