/* Copyright (C) the limit_sliding authors */

#include "http/request/penalties.hpp"

#include "core/table/zone.hpp"
#include "http/request/limit_claim.hpp"
#include "http/response/headers.hpp"
#include "http/response/log.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/bans/ban_call.hpp"

namespace limit_sliding {
namespace {

/* Applies the override of a banned key, as this node knows the override.  Returns NGX_OK if the
 * override is "off", else NGX_DONE, and NGX_ERROR if there is no memory. */
[[gnu::noinline]] ngx_int_t find_own(ngx_http_request_t *r, const ZoneConf &zone, Claim &claim) {
    const auto hash = claim.key_hash();
    Override own = {};
    if (zone.is_remote()) {
        own = zone.remote.last_overrides->find(hash);
    } else {
        (void)find_override(zone, hash, &own);
    }

    if (terms_of(own) == Terms::kUnlimited) { return NGX_OK; }

    return !own.is_set() || apply_override(r->pool, zone, own, claim) ? NGX_DONE : NGX_ERROR;
}

/* The key of a claim of a request, and memory for a verdict. */
struct RequestKey {
    ngx_http_request_t *r;

    /* Sets the text of the claim's key.  A claim of this node does not keep the text, so the key is
     * evaluated again. */
    bool get(const Claim &claim, ngx_str_t *key) const {
        if (claim.remote == nullptr) {
            return get_text(r, &limit_of(claim).zone->key, key) == NGX_OK;
        }

        *key = remote_of(claim).key;
        return true;
    }

    Verdict *verdict() const { return alloc<Verdict>(r->pool); }
};

/* The same for a claim without a request. */
struct GivenKey {
    const ngx_str_t &text;
    Verdict &room;

    bool get(const Claim &, ngx_str_t *key) const {
        *key = text;
        return true;
    }

    Verdict *verdict() const { return &room; }
};

template <class KeyOf>
void add_offender(const KeyOf &key_of, const Claim &claim, uint32_t n) {
    const auto hash = claim.key_hash();
    auto &offenders = *limit_of(claim).zone->memory.aside.offenders;
    const auto place = offenders.count(hash, n, ngx_current_msec);
    ngx_str_t key;

    if (place != Offenders::kNamed && key_of.get(claim, &key)) {
        offenders.set_text(place, hash, view(key));
    }
}

/* Sets *hash to ban_hash() of the claim's key. */
template <class KeyOf>
[[gnu::always_inline]] inline bool get_ban_hash(const KeyOf &key_of, const Claim &claim,
                                                uint64_t *hash) {
    if (!limit_of(claim).zone->is_remote()) {
        *hash = claim.key_hash();
        return true;
    }

    ngx_str_t key;
    if (!key_of.get(claim, &key)) { return false; }

    *hash = Bans::common_hash(view(key));
    return true;
}

/* Rejects the claim by a ban.  `excess` is the excess over the claim's limit, in units of
 * 1/1000. */
[[gnu::always_inline]] inline void set_ban(const Ban &ban, uint64_t excess, Verdict &verdict,
                                           Claim &claim) {
    verdict = {claim.limit, 0, excess, ban.left_ms, ban.left_ms, 0};
    claim.decide(Standing::kBanned, Outcome::kRejected, verdict);
}

/* Counts a rejection by a limit, in a zone with penalties.  If a ban begins, rejects the claim by
 * the ban. */
template <class KeyOf>
void count_towards_ban(const KeyOf &key_of, Claim &claim) {
    const auto &zone = *limit_of(claim).zone;
    uint64_t hash;
    if (!get_ban_hash(key_of, claim, &hash)) { return; }

    const auto ban = zone.memory.aside.bans->reject(hash, zone.rejected.penalty, ngx_current_msec);
    if (ban.left_ms == 0) { return; }

    if (kHasRedis && zone.is_remote()) { tell_ban(zone.remote, hash); }

    add_atomically(zone.worker.counters->bans);

    auto *room = key_of.verdict();
    if (room != nullptr) { set_ban(ban, claim.describe(ngx_current_msec).excess, *room, claim); }
}

/* Adds a sample of the rejections in a zone with penalties to the offenders. */
template <class KeyOf>
[[gnu::always_inline]] inline void sample_offender(const KeyOf &key_of, const Claim &claim) {
    auto &zone = *limit_of(claim).zone;
    const auto n = zone.rejected.top ? zone.worker.top_sampler.weight(ngx_current_msec) : 0;
    if (n != 0) { add_offender(key_of, claim, n); }
}

/* Counts a request that a ban has rejected. */
template <class KeyOf>
[[gnu::always_inline]] inline void count_banned(const KeyOf &key_of, const Claim &claim) {
    add_atomically(limit_of(claim).zone->worker.counters->banned_requests);
    sample_offender(key_of, claim);
}

/* Answers a request with one claim, which is banned.  Returns false if there is no memory. */
[[gnu::always_inline]] inline bool turn_away(ngx_http_request_t *r, const LocConf &conf,
                                             Context &ctx, Claim &claim, const Ban &ban) {
    ctx.nclaims = 1;
    ctx.described = &claim;
    ctx.headers = conf.headers;
    ctx.now_ms = ngx_current_msec;
    ctx.status = Status::kRejected;

    count_request(*limit_of(claim).zone, kCountRejected);
    count_banned(RequestKey{r}, claim);
    if (is_logged(r, conf.log_level)) { log_rejected(r, conf, claim, *claim.verdict); }

    return (conf.headers & kHeaderRetryAfter) == 0
           || push_retry_after(r, ctx.retry_after, ban.left_ms);
}

template <class KeyOf>
[[gnu::always_inline]] inline void add_rejections_of(const KeyOf &key_of, Claim &claim,
                                                     uint32_t n) {
    /* A key was not over its limit if the zone was full, or if Redis did not answer. */
    if (claim.outcome != Outcome::kRejected || is_fallback(claim)) { return; }

    if (claim.standing == Standing::kBanned) {
        count_banned(key_of, claim);
        return;
    }

    if (!limit_of(claim).zone->rejected.are_banned()) {
        add_offender(key_of, claim, n);
        return;
    }

    sample_offender(key_of, claim);

    /* A blocked key needs no ban. */
    if (claim.standing != Standing::kBlocked) { count_towards_ban(key_of, claim); }
}

} // namespace

uint64_t ban_hash(const ZoneConf &zone, std::string_view key) {
    return zone.is_remote() ? Bans::common_hash(key) : zone.memory.table->hash(key);
}

void lift_ban(const ZoneConf &zone, std::string_view key) {
    const auto hash = ban_hash(zone, key);
    zone.memory.aside.bans->lift(hash, ngx_current_msec);
    if (kHasRedis && zone.is_remote()) { tell_lifted_ban(zone.remote, hash); }
}

template <bool kSingle>
ngx_int_t find_ban(ngx_http_request_t *r, const LocConf &conf, Context &ctx, Claim &claim) {
    const auto &zone = *limit_of(claim).zone;
    uint64_t hash;
    if (!get_ban_hash(RequestKey{r}, claim, &hash)) { return NGX_ERROR; }

    const auto ban = zone.memory.aside.bans->find(hash, ngx_current_msec);
    if (ban.left_ms == 0) { return NGX_OK; }

    if (zone.is_remote() || zone.memory.aside.overrides->count() != 0) {
        const auto rc = find_own(r, zone, claim);
        if (rc != NGX_DONE) { return rc; }
    }

    /* A blocked key is rejected after the ban as well, so no Retry-After would be true. */
    if (!claim.is_here()) { return NGX_OK; }

    /* A single claim is never moved, so its verdict may be in the claim. */
    auto *room = kSingle ? &claim.rejection : alloc<Verdict>(r->pool);
    if (room == nullptr) { return NGX_ERROR; }

    set_ban(ban, claim.cost * 1000, *room, claim);
    return !kSingle || turn_away(r, conf, ctx, claim, ban) ? NGX_DONE : NGX_ERROR;
}

template ngx_int_t find_ban<true>(ngx_http_request_t *, const LocConf &, Context &, Claim &);
template ngx_int_t find_ban<false>(ngx_http_request_t *, const LocConf &, Context &, Claim &);

bool find_ban(const ngx_str_t &key, Claim &claim, TermsRoom &room) {
    const auto &zone = *limit_of(claim).zone;
    uint64_t hash;
    (void)get_ban_hash(GivenKey{key, room.verdict}, claim, &hash);

    const auto ban = zone.memory.aside.bans->find(hash, ngx_current_msec);
    if (ban.left_ms == 0) { return false; }

    if (zone.is_remote()) {
        const auto own = zone.remote.last_overrides->find(claim.key_hash());
        if (terms_of(own) == Terms::kUnlimited) { return false; }

        if (own.is_set()) { (void)apply_override(claim, zone.policy, own, &room); }
    }

    if (claim.is_here()) { set_ban(ban, claim.cost * 1000, room.verdict, claim); }

    return true;
}

void add_rejections(ngx_http_request_t *r, Claim &claim, uint32_t n) {
    add_rejections_of(RequestKey{r}, claim, n);
}

void add_rejections(const ngx_str_t &key, Claim &claim, uint32_t n, Verdict &verdict) {
    add_rejections_of(GivenKey{key, verdict}, claim, n);
}

} // namespace limit_sliding
