/* Copyright (C) the limit_sliding authors */

/* Requests for keys in Redis.  The request looks at the key, which shows that Redis answers.  A
 * request that changes the key then sends a command and looks again.  The functions return
 * NGX_AGAIN while the request waits.  If Redis does not answer a request that changes nothing,
 * this node shows its own count. */

#include "http/json/api_response.hpp"
#include "http/keys/key_operations.hpp"
#include "http/request/suspend.hpp"
#include "ngx/event.hpp"
#include "redis/asks/ask.hpp"
#include "redis/shares/claim_units.hpp"

namespace limit_sliding {
namespace {

constexpr ngx_uint_t kWrites = NGX_HTTP_PUT | NGX_HTTP_DELETE | NGX_HTTP_POST;

/* Sends the key as this node knows it: by the last limit from Redis, and this node's count. */
ngx_int_t send_known(KeyRequest &key) {
    key.remote.source = Source::kFallback;
    key.own = key.zone->memory.aside.redis_overrides->find(key.claim.key_hash());
    return send_count(key);
}

/* Continues by `then` once the call is done. */
ngx_int_t go_on(KeyRequest &key, Progress progress, decltype(KeyRequest::then) then) {
    key.then = then;
    switch (progress) {
    case Progress::kDone:
        return then(key);
    case Progress::kWaits:
        return NGX_AGAIN;
    case Progress::kAway:
        return (key.method & kWrites) == 0
                   ? send_known(key)
                   : send_error(key.request, NGX_HTTP_SERVICE_UNAVAILABLE, "redis %s",
                                why_undecided(key.zone->remote));
    default:
        return send_error(key.request, NGX_HTTP_BAD_GATEWAY, "redis did not do it, see the log");
    }
}

/* The override may have expired since the look. */
ngx_int_t send_with_ttl(KeyRequest &key) {
    const int64_t ttl_ms = key.remote.ttl_ms;
    key.is_ttl_denied = key.waiter.told == Told::kRejected;
    if (ttl_ms >= 0) { key.ttl_s = seconds(static_cast<uint64_t>(ttl_ms)); }

    return send_key(key);
}

ngx_int_t send_looked(KeyRequest &key) {
    return key.own.is_set() ? go_on(key, ask_ttl(key), send_with_ttl) : send_key(key);
}

ngx_int_t look_again(KeyRequest &key) { return go_on(key, look(key), send_looked); }

ngx_int_t end_put(KeyRequest &key) {
    key.zone->memory.aside.redis_overrides->set(key.claim.key_hash(), key.rate.own);
    return look_again(key);
}

ngx_int_t end_take(KeyRequest &key) {
    if (key.waiter.told == Told::kRejected
        && !reject_take(key, key.claim.told_verdict().retry_after_ms)) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return look_again(key);
}

/* Changes the key, unless the request changes nothing.  Redis is known to answer. */
ngx_int_t end_first_look(KeyRequest &key) {
    if (key.method == NGX_HTTP_PUT) {
        const ngx_msec_t ttl_ms = key.rate.ttl_s * 1000;
        const auto text = key.rate.own.is_set() ? view(key.rate.text) : std::string_view{};
        return go_on(key, set_override(key, text, ttl_ms), end_put);
    }

    if (key.takes && !decide_take(key)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    if (key.method != NGX_HTTP_POST) { return send_looked(key); }

    const ngx_int_t rc = check_chargeable(key);
    if (rc != NGX_DECLINED) { return rc; }

    return key.takes ? go_on(key, take(key), end_take) : go_on(key, charge(key), look_again);
}

void end_reply(KeyRequest &key) {
    answer(key.request, &key, [&] { return go_on(key, key.next(key), key.then); });
}

} // namespace

ngx_int_t handle_in_redis(KeyRequest &key) {
    key.remote.zone = &key.zone->remote;
    key.remote.key = key.key;
    key.remote.source = Source::kRedis;
    key.claim.remote = &key.remote;
    init_event<end_reply>(key.waiter.event, key);

    const ngx_int_t rc = key.method == NGX_HTTP_DELETE ? go_on(key, forget(key), look_again)
                                                       : go_on(key, look(key), end_first_look);
    if (rc != NGX_AGAIN) { return rc; }

    return suspend_content(key.request, &key,
                           [](void *data) { leave_ask(&static_cast<KeyRequest *>(data)->waiter); });
}

} // namespace limit_sliding
