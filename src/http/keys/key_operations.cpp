/* Copyright (C) the limit_sliding authors */

#include "http/keys/key_operations.hpp"

#include "core/limiter/limiter.hpp"
#include "http/conf/configuration.hpp"
#include "http/json/api_response.hpp"
#include "http/request/penalties.hpp"
#include "http/response/headers.hpp"
#include "http/response/variables.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

Ban ban_of(const KeyRequest &key) {
    const ZoneConf &zone = *key.zone;
    if (!zone.rejected.are_banned()) { return {}; }

    return zone.memory.aside.bans->find(ban_hash(zone, view(key.key)), ngx_current_msec);
}

void write_ban(Json &json, const KeyRequest &key) {
    const Ban ban = ban_of(key);
    if (ban.left_ms == 0) {
        json.field("ban", nullptr);
        return;
    }

    auto object = json.object("ban");
    json.field("left", seconds(ban.left_ms));
    json.field("left_ms", ban.left_ms);
    json.field("doublings", ban.doublings);
}

void write_in_flight(Json &json, const KeyRequest &key) {
    const uint64_t hash = key.claim.key_hash();
    const auto sums = key.zone->memory.aside.ledger->sums(&hash, ngx_current_msec);
    json.field("held", sums.units);
    json.field("in_flight", sums.requests);
    json.field("longest", sums.longest_s);
}

void write_window(Json &json, const Window &window) {
    if (window.calendar != Calendar::kNone) {
        json.field("window", name_of(window.calendar));
    } else if (!window.is_given()) {
        json.field("window", nullptr);
    } else {
        json.seconds_field("window", window.ms);
    }
}

} // namespace

bool decide_take(KeyRequest &key) {
    if (key.limit().is_unlimited()) {
        key.method = NGX_HTTP_GET;
        return true;
    }

    const uint64_t wait_ms = key.limit().is_blocked() ? kNever : ban_of(key).left_ms;
    return wait_ms == 0 || reject_take(key, wait_ms);
}

bool reject_take(KeyRequest &key, uint64_t wait_ms) {
    key.method = NGX_HTTP_GET;
    key.status = loc_conf(key.request).status_code;
    return wait_ms == kNever || push_retry_after(key.request, key.retry_after, wait_ms);
}

ngx_int_t send_key(const KeyRequest &key) {
    return send_json(key.request, key.status, [&](Json &json) {
        const auto known_field = [&](const char *name, bool is_known, uint64_t value) {
            json.field(name, is_known ? &value : nullptr);
        };

        const Override &limit = key.limit();
        const Policy policy = with_window(key.zone->policy, key.basis().window);
        const Verdict verdict = key.claim.describe(ngx_current_msec);
        const bool is_blocked = limit.is_blocked();
        const bool has_limit = is_blocked || limit.is_limited();

        /* A bucket has no known rate without a known limit, and a blocked key counts nothing. */
        const bool is_known = !is_blocked
                              && (key.has_basis()
                                  || (policy.algorithm != Algorithm::kTokenBucket
                                      && policy.algorithm != Algorithm::kLeakyBucket));

        json.field("zone", key.zone->name);
        write_key(json, *key.zone, view(key.key));

        if (key.own.is_unlimited()) {
            json.field("own_limit", "off");
        } else {
            json.field("own_limit", key.own.is_set());
        }

        known_field("ttl", key.ttl_s.has_value(), key.ttl_s.value_or(0));
        if (key.is_ttl_denied) { json.field("ttl_error", "redis did not tell it, see the log"); }

        write_window(json, policy.window());
        known_field("limit", has_limit, is_blocked ? 0 : limit.limit);
        known_field("remaining", has_limit, is_blocked ? 0 : verdict.remaining);
        known_field("used", is_known, is_known ? policy.used(verdict) : 0);
        const bool is_timed = is_known && !policy.is_in_flight();
        known_field("reset", is_timed, seconds(verdict.reset_ms));
        known_field("reset_ms", is_timed, verdict.reset_ms);
        if (policy.is_in_flight()) { write_in_flight(json, key); }

        write_ban(json, key);
        if (key.zone->is_remote()) {
            json.field("source", kSourceNames[index_of(key.remote.source)]);
        }
    });
}

ngx_int_t send_count(KeyRequest &key) {
    key.set_limit(key.basis());
    key.claim.fit_core();
    acquire(&key.claim, 1, ngx_current_msec);
    return send_key(key);
}

ngx_int_t check_chargeable(const KeyRequest &key) {
    const Override &limit = key.limit();
    if (limit.is_limited()) { return NGX_DECLINED; }

    return send_error(key.request, NGX_HTTP_CONFLICT,
                      limit.is_blocked() ? "the key is blocked"
                                         : "the key has no limit, or it is not known");
}

} // namespace limit_sliding
