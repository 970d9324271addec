/* Copyright (C) the limit_sliding authors */

/* Counts the rejections of keys, and bans the keys. */

#pragma once

#include "http/conf/configuration.hpp"
#include "http/response/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Returns the hash by which a zone knows the ban of a key: one that all nodes have in
 * common if the zone is in Redis. */
uint64_t ban_hash(const ZoneConf &zone, std::string_view key);

/* Forgets the ban of a key, its doublings and what was counted towards one. */
void lift_ban(const ZoneConf &zone, std::string_view key);

/* Looks for a ban of the key of a claim, in a zone with penalties; one whose override
 * is "off" is not banned.  NGX_OK: it is not; NGX_DONE: it is, and the claim is set to be
 * rejected by that; else NGX_ERROR.  kSingle: the claim is all of the request's, which is
 * then answered, but for the status that its place has. */
template <bool kSingle>
ngx_int_t find_ban(ngx_http_request_t *r, const LocConf &conf, Context &ctx, Claim &claim);

/* Adds so many rejections to the key of a claim that rejected: among its zone's
 * offenders, and to those that lead to a ban.  If one begins, the claim is set to be
 * rejected by it.  To be called if the zone's rejected keys are watched. */
void add_rejections(ngx_http_request_t *r, Claim &claim, uint32_t n);

} // namespace limit_sliding
