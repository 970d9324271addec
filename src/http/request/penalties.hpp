/* Copyright (C) the limit_sliding authors */

/* Counts the rejections of keys, and bans the keys. */

#pragma once

#include "core/policy/terms.hpp"
#include "http/conf/configuration.hpp"
#include "http/response/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Returns the hash of a key in the bans of a zone.  All nodes have the same hash of a key if the
 * zone is in Redis. */
uint64_t ban_hash(const ZoneConf &zone, std::string_view key);

/* Deletes the ban of a key, its doublings, and the rejections counted towards the next ban. */
void lift_ban(const ZoneConf &zone, std::string_view key);

/* Finds the ban of the claim's key, in a zone with penalties.  A key with the override "off" is
 * never banned, and the limit "0" goes before a ban, because it has no end.  Returns NGX_OK if no
 * ban rejects the claim, NGX_DONE if the ban rejects the claim, and NGX_ERROR if there is no
 * memory, or a variable failed.  With kSingle, the request has no other claim, and a banned request
 * is also counted, logged and described; the caller then returns the status of the location. */
template <bool kSingle>
ngx_int_t find_ban(ngx_http_request_t *r, const LocConf &conf, Context &ctx, Claim &claim);

/* The same for a claim of this key that belongs to no request, and whose override in this node's
 * memory was applied.  Returns true if the ban, or the limit "0", rejects a banned key.  The claim
 * then points to the room. */
bool find_ban(const ngx_str_t &key, Claim &claim, TermsRoom &room);

/* Adds n rejections to the key of a claim that rejected: to the offenders of the zone, and to the
 * rejections counted towards a ban.  If a ban begins, it rejects the claim.  The rejected keys of
 * the zone must be watched. */
void add_rejections(ngx_http_request_t *r, Claim &claim, uint32_t n);

/* The same for a claim of this key that belongs to no request.  The claim has this verdict if a ban
 * begins. */
void add_rejections(const ngx_str_t &key, Claim &claim, uint32_t n, Verdict &verdict);

} // namespace limit_sliding
