/* Copyright (C) the limit_sliding authors */

/* Requests for keys in Redis.  The request looks at the key, which shows that Redis answers.  A
 * request that changes the key then sends a command and looks again.  The functions return
 * NGX_AGAIN while the request waits.  If Redis does not answer a request that changes nothing,
 * this node shows its own count. */

#include <algorithm>

#include "http/json/api_response.hpp"
#include "http/keys/key_operations.hpp"
#include "http/request/suspend.hpp"
#include "ngx/event.hpp"
#include "redis/decisions/client.hpp"
#include "redis/shared/outbox.hpp"
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

ngx_int_t wait_or_fail(KeyRequest &key, bool waits) {
    if (waits) { return NGX_AGAIN; }

    return (key.method & kWrites) == 0 ? send_known(key)
                                       : send_error(key.request, NGX_HTTP_SERVICE_UNAVAILABLE,
                                                    "redis %s", why_undecided(key.zone->remote));
}

ngx_int_t look(KeyRequest &key) {
    set_usual_limit(key);
    key.claim.purpose = Purpose::kLook;
    key.claim.cost = 0;
    return wait_or_fail(key, key.claim.policy->is_in_flight()
                                 ? !take_units(key.claim, &key.waiter).has_value()
                                 : ask_redis({&key.claim, 1}, &key.waiter));
}

ngx_int_t send_command(KeyRequest &key, KeyCommand command) {
    return wait_or_fail(key, send_key_command(&key.claim, command, &key.rate.text,
                                              key.rate.ttl_s * 1000, &key.waiter));
}

/* Refunds units that were not sent to Redis yet, the latest ones.  Returns their number. */
int64_t refund_unsent(const KeyRequest &key) {
    Outbox *outbox = key.zone->remote.outbox;
    if (key.charge.cost >= 0 || outbox == nullptr) { return 0; }

    return static_cast<int64_t>(
        outbox->subtract(key.claim.hash, static_cast<uint64_t>(-key.charge.cost)));
}

/* Charges the cost, or takes it by the same call as a request does. */
ngx_int_t charge(KeyRequest &key) {
    const ngx_int_t rc = check_chargeable(key);
    if (rc != NGX_DECLINED) { return rc; }

    set_usual_limit(key);
    if (!key.charge.takes) {
        const int64_t cost = key.charge.cost + refund_unsent(key);
        return wait_or_fail(key, charge_redis(&key.claim, cost, &key.waiter));
    }

    key.claim.purpose = Purpose::kConsume;
    key.claim.cost = std::min<uint64_t>(key.charge.cost, kRemoteMax + 1);
    return wait_or_fail(key, ask_redis({&key.claim, 1}, &key.waiter));
}

/* Sends the command of the method.  Redis is known to answer. */
ngx_int_t command(KeyRequest &key) {
    key.step = key.kCommands;

    if (key.method == NGX_HTTP_POST) { return charge(key); }

    return send_command(key, key.method == NGX_HTTP_DELETE ? KeyCommand::kForget
                             : key.rate.own.is_set()       ? KeyCommand::kSetOverride
                                                           : KeyCommand::kUnsetOverride);
}

ngx_int_t end_look(KeyRequest &key) {
    if (key.waiter.told == Told::kFailed) { return wait_or_fail(key, false); }

    key.verdict = key.claim.given_verdict();
    key.own = key.remote.own;

    if (key.step == key.kLooks && key.method == NGX_HTTP_POST && key.charge.takes
        && !decide_take(key)) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (key.step == key.kLooks && (key.method & kWrites) != 0) { return command(key); }

    if (!key.own.is_set()) { return send_key(key); }

    key.step = key.kAsksTtl;
    return send_command(key, KeyCommand::kAskTtl);
}

ngx_int_t look_again(KeyRequest &key) {
    key.step = key.kLooksAgain;
    return look(key);
}

ngx_int_t end_command(KeyRequest &key) {
    if (key.waiter.told == Told::kRejected && key.charge.takes) {
        return reject_take(key, key.claim.given_verdict().retry_after_ms)
                   ? look_again(key)
                   : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (key.waiter.told != Told::kAdmitted) {
        return send_error(key.request, NGX_HTTP_BAD_GATEWAY, "redis did not do it, see the log");
    }

    /* The key's own limit may have another window than its last request. */
    const Window &usual = key.usual.window;
    if (key.method == NGX_HTTP_DELETE && key.step == KeyRequest::kCommands && usual.is_given()
        && usual != key.claim.policy->window()) {
        key.step = KeyRequest::kForgetsUsual;
        set_usual_limit(key);
        return send_command(key, KeyCommand::kForget);
    }

    if (key.method == NGX_HTTP_POST) {
        (void)charge_here(key);
    } else if (key.method == NGX_HTTP_PUT) {
        key.zone->memory.aside.redis_overrides->set(key.claim.key_hash(), key.rate.own);
    }

    /* Deletes the old facts of this node.  Other nodes ask Redis again within a second. */
    forget_here(key);
    return look_again(key);
}

/* The override may have expired since the look. */
ngx_int_t end_ttl(KeyRequest &key) {
    if (key.waiter.told == Told::kFailed) { return wait_or_fail(key, false); }

    const int64_t ttl_ms = key.remote.ttl_ms;
    key.is_ttl_denied = key.waiter.told == Told::kRejected;
    if (ttl_ms >= 0) { key.ttl_s = seconds(static_cast<uint64_t>(ttl_ms)); }

    return send_key(key);
}

ngx_int_t end_step(KeyRequest &key) {
    switch (key.step) {
    case KeyRequest::kCommands:
    case KeyRequest::kForgetsUsual:
        return end_command(key);
    case KeyRequest::kAsksTtl:
        return end_ttl(key);
    default:
        return end_look(key);
    }
}

void end_reply(KeyRequest &key) {
    answer(key.request, &key, [&] { return end_step(key); });
}

} // namespace

ngx_int_t handle_in_redis(KeyRequest &key) {
    key.remote.zone = &key.zone->remote;
    key.remote.key = key.key;
    key.remote.source = Source::kRedis;
    key.claim.remote = &key.remote;
    init_event<end_reply>(key.waiter.event, key);

    const ngx_int_t rc = look(key);
    if (rc != NGX_AGAIN) { return rc; }

    return suspend_content(key.request, &key,
                           [](void *data) { leave_ask(&static_cast<KeyRequest *>(data)->waiter); });
}

} // namespace limit_sliding
