/* Copyright (C) the limit_sliding authors */

#include "http/keys/key_operations.hpp"

#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"
#include "http/json/response.hpp"
#include "http/overrides/overridden_claim.hpp"
#include "http/request/bans.hpp"
#include "http/response/variables.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Deletes refusals of the claim's key, leases unless for POST, and for DELETE the history. */
void forget_claim(const KeyRequest &key) {
    RemoteZone &remote = key.zone->remote;
    if (key.method == NGX_HTTP_DELETE) { key.claim.forget(ngx_current_msec); }

    if (key.claim.remote == nullptr) { return; }

    remote.refusals->forget(key.claim);

    if (remote.leases != nullptr && key.method != NGX_HTTP_POST) {
        remote.leases->forget(key.claim, ngx_current_msec);
    }
}

void write_ban(Json &json, const KeyRequest &key) {
    const ZoneConf &zone = *key.zone;
    Ban ban = {};
    if (zone.rejected.are_banned()) {
        ban = zone.memory.aside.bans->find(ban_hash(zone, view(key.key)), ngx_current_msec);
    }

    if (ban.left_ms == 0) {
        json.field("ban", nullptr);
        return;
    }

    auto object = json.object("ban");
    json.field("left", seconds(ban.left_ms));
    json.field("left_ms", ban.left_ms);
    json.field("doublings", ban.doublings);
}

void write_window(Json &json, const Window &window) {
    if (window.calendar != Calendar::kNone) {
        json.field("window", name_of(window.calendar));
    } else {
        json.seconds_field("window", window.ms);
    }
}

} // namespace

bool set_limit(KeyRequest &key, const Override &limit) {
    return apply_override(key.request->pool, *key.zone, limit, key.claim);
}

bool set_usual_limit(KeyRequest &key) {
    return set_limit(key, key.usual.is_limited() ? key.usual : Override{key.zone->limit_max(), {}});
}

void init_claim(KeyRequest &key) {
    ZoneConf &zone = *key.zone;
    Claim &claim = key.claim;

    claim.zone = zone.memory.table;
    claim.policy = &zone.policy;
    claim.counts = &zone.worker.counters->slots;
    claim.debts = zone.memory.aside.debts;
    claim.purpose = Purpose::kLook;
    claim.hash = zone.memory.table->hash(view(key.key));

    if (zone.variable) { key.usual = zone.memory.aside.variable_limits->find(claim.hash); }

    if (!key.usual.is_set()) { key.usual = {zone.limit != 0 ? zone.limit : kUnlimited, {}}; }
}

bool charge_here(KeyRequest &key) {
    if (!set_limit(key, key.basis())) { return false; }

    Claim claim = key.claim;
    claim.verdict = nullptr;
    claim.fit_core();

    if (key.cost > 0) {
        charge(claim, key.cost, ngx_current_msec);
    } else {
        give_back(claim, -key.cost, ngx_current_msec);
    }

    return true;
}

bool forget_here(KeyRequest &key) {
    for (const Window &window : {Window{}, key.usual.window, key.own.window}) {
        if (!set_limit(key, {key.basis().limit, window})) { return false; }

        forget_claim(key);
    }

    if (key.method == NGX_HTTP_DELETE) {
        key.zone->memory.aside.offenders->forget(key.claim.key_hash());
    }

    return true;
}

ngx_int_t send_key(const KeyRequest &key) {
    return send_json(key.request, NGX_HTTP_OK, [&](Json &json) {
        const auto known_field = [&](const char *name, bool is_known, uint64_t value) {
            json.field(name, is_known ? &value : nullptr);
        };

        const Override &limit = key.limit();
        const Policy policy = with_window(key.zone->policy, key.basis().window);
        const Verdict &verdict = key.verdict;
        const bool is_blocked = limit.is_blocked();
        const bool has_limit = is_blocked || !limit.is_unlimited();

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
        write_window(json, policy.window());
        known_field("limit", has_limit, is_blocked ? 0 : limit.limit);
        known_field("remaining", has_limit, is_blocked ? 0 : verdict.remaining);
        known_field("used", is_known, is_known ? policy.used(verdict) : 0);
        known_field("reset", is_known, seconds(verdict.reset_ms));
        known_field("reset_ms", is_known, verdict.reset_ms);
        write_ban(json, key);
        if (key.zone->is_remote()) {
            json.field("source", kSourceNames[index_of(key.remote.source)]);
        }
    });
}

ngx_int_t send_count(KeyRequest &key) {
    if (!set_limit(key, key.basis())) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    key.claim.fit_core();
    acquire(&key.claim, 1, ngx_current_msec);
    key.verdict = key.claim.describe(ngx_current_msec);
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
