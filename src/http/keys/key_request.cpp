/* Copyright (C) the limit_sliding authors */

#include "http/keys/key_request.hpp"

#include "http/json/api_response.hpp"
#include "http/request/penalties.hpp"
#include "http/response/variables.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

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

Ban ban_of(const KeyRequest &key) {
    const ZoneConf &zone = *key.zone;
    if (!zone.rejected.are_banned()) { return {}; }

    return zone.memory.aside.bans->find(ban_hash(zone, view(key.key)), ngx_current_msec);
}

ngx_int_t send_key(const KeyRequest &key) {
    return send_json(key.request, key.status, [&](Json &json) {
        const auto known_field = [&](const char *name, bool is_known, uint64_t value) {
            json.field(name, is_known ? &value : nullptr);
        };

        const Override &limit = key.limit();
        const Policy policy = with_window(key.zone->policy, key.basis().window);
        const Verdict verdict = key.claim.describe(ngx_current_msec);
        const bool is_blocked = terms_of(limit) == Terms::kBlocked;
        const bool has_limit = is_blocked || has_number(limit);

        /* A bucket has no known rate without a known limit, and a blocked key counts nothing. */
        const bool is_known = !is_blocked
                              && (key.has_basis()
                                  || (policy.algorithm != Algorithm::kTokenBucket
                                      && policy.algorithm != Algorithm::kLeakyBucket));

        json.field("zone", key.zone->name);
        write_key(json, *key.zone, view(key.key));

        if (terms_of(key.own) == Terms::kUnlimited) {
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

} // namespace limit_sliding
