/* Copyright (C) the limit_sliding authors */

/* Requests for keys.  A request looks at the key, which shows that Redis answers if the key is
 * there.  A request that changes the key then does so, and looks again.  The functions return
 * NGX_AGAIN while the request waits for Redis.  If Redis does not answer a request that changes
 * nothing, this node shows its own count. */

#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"
#include "http/conf/configuration.hpp"
#include "http/json/api_response.hpp"
#include "http/json/arguments.hpp"
#include "http/keys/key_request.hpp"
#include "http/keys/keys.hpp"
#include "http/overrides/api_writes.hpp"
#include "http/request/penalties.hpp"
#include "http/request/suspend.hpp"
#include "http/response/headers.hpp"
#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/asks/ask.hpp"
#include "redis/shares/claim_units.hpp"

namespace limit_sliding {

/* An API write, and the request that waits for it. */
struct WaitedWrite {
    OverrideWrite write;
    KeyRequest *waiting; /* nullptr: the client has left */
};

namespace {

constexpr ngx_uint_t kWrites = NGX_HTTP_PUT | NGX_HTTP_DELETE | NGX_HTTP_POST;

/* Rejects a take: the answer has limit_sliding_status, and Retry-After for a wait in ms other than
 * kNever.  Returns false if there is no memory. */
bool reject_take(KeyRequest &key, uint64_t wait_ms) {
    key.method = NGX_HTTP_GET;
    key.status = loc_conf(key.request).status_code;
    return wait_ms == kNever || push_retry_after(key.request, key.retry_after, wait_ms);
}

/* Decides a take by the limit "off" or "0" or the ban of the key, as such a request is decided.
 * Then nothing is left to be charged.  Returns false if there is no memory. */
bool decide_take(KeyRequest &key) {
    if (terms_of(key.limit()) == Terms::kUnlimited) {
        key.method = NGX_HTTP_GET;
        return true;
    }

    const uint64_t wait_ms
        = terms_of(key.limit()) == Terms::kBlocked ? kNever : ban_of(key).left_ms;
    return wait_ms == 0 || reject_take(key, wait_ms);
}

/* Sends the key as this node knows it: by the last limit from Redis, and this node's count. */
ngx_int_t send_known(KeyRequest &key) {
    key.remote.source = Source::kFallback;
    key.own = key.zone->memory.aside.redis_overrides->find(key.claim.key_hash());
    look_here(key);
    return send_key(key);
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
                                kHasRedis ? why_undecided(key.zone->remote) : "");
    case Progress::kNoRoom:
        return send_error(key.request, NGX_HTTP_INSUFFICIENT_STORAGE, "no room for the key");
    default:
        return send_error(key.request, NGX_HTTP_BAD_GATEWAY, "redis did not do it, see the log");
    }
}

ngx_int_t send_with_ttl(KeyRequest &key) {
    key.is_ttl_denied = key.waiter.result == WaitResult::kRejected;
    return send_key(key);
}

ngx_int_t send_looked(KeyRequest &key) {
    return kHasRedis && key.zone->is_remote() && key.own.is_set()
               ? go_on(key, ask_ttl(key), send_with_ttl)
               : send_key(key);
}

ngx_int_t look_again(KeyRequest &key) { return go_on(key, look(key), send_looked); }

ngx_int_t end_put(KeyRequest &key) {
    key.zone->memory.aside.redis_overrides->set(key.claim.key_hash(), key.rate.own);
    return look_again(key);
}

ngx_int_t end_take(KeyRequest &key) {
    return is_admitted(key.claim) || reject_take(key, key.claim.retry_after_ms(ngx_current_msec))
               ? look_again(key)
               : NGX_HTTP_INTERNAL_SERVER_ERROR;
}

/* Continues after the look that shows that Redis answers. */
ngx_int_t end_first_look(KeyRequest &key) {
    if (kHasRedis && key.method == NGX_HTTP_PUT) {
        const ngx_msec_t ttl_ms = key.rate.ttl_s * 1000;
        const auto text = key.rate.own.is_set() ? view(key.rate.text) : std::string_view{};
        return go_on(key, set_override(key, text, ttl_ms), end_put);
    }

    if (key.takes && !decide_take(key)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    if (key.method != NGX_HTTP_POST) { return send_looked(key); }

    const Override &limit = key.limit();
    if (!has_number(limit)) {
        return send_error(key.request, NGX_HTTP_CONFLICT,
                          terms_of(limit) == Terms::kBlocked
                              ? "the key is blocked"
                              : "the key has no limit, or it is not known");
    }

    return key.takes ? go_on(key, take(key), end_take) : go_on(key, charge(key), look_again);
}

void end_reply(KeyRequest &key) {
    answer(key.request, &key, [&] { return go_on(key, key.next(key), key.then); });
}

ngx_int_t answer_write(KeyRequest &key, OverrideWrite::Result result) {
    switch (result) {
    case OverrideWrite::Result::kDone:
        return look_again(key);
    case OverrideWrite::Result::kNoRoom:
        return send_error(key.request, NGX_HTTP_INSUFFICIENT_STORAGE,
                          "no room for another limit of a key");
    case OverrideWrite::Result::kDiskFull:
        return send_error(key.request, NGX_HTTP_INSUFFICIENT_STORAGE,
                          "no room in the file of limits");
    case OverrideWrite::Result::kReplaced:
        return send_error(key.request, NGX_HTTP_SERVICE_UNAVAILABLE,
                          "the file of limits was replaced, and needs a reload");
    default:
        return send_error(key.request, NGX_HTTP_INTERNAL_SERVER_ERROR,
                          "the file of limits cannot be written, see the log");
    }
}

void end_write(WaitedWrite &waited) {
    KeyRequest *key = waited.waiting;
    const auto result = waited.write.result;
    if (key != nullptr) { key->write = nullptr; }

    ngx_free(&waited);
    if (key != nullptr) {
        answer(key->request, key, [=] { return answer_write(*key, result); });
    }
}

/* Creates an API write in one piece of memory with its texts. */
WaitedWrite *make_write(KeyRequest &key) {
    const ngx_str_t &text = key.rate.text;
    const size_t texts = key.key.len + text.len;
    auto *memory = static_cast<u_char *>(
        ngx_alloc(sizeof(WaitedWrite) + texts, key.request->connection->log));
    if (memory == nullptr) { return nullptr; }

    u_char *p = memory + sizeof(WaitedWrite);
    auto *waited = new (memory) WaitedWrite();
    OverrideWrite &write = waited->write;
    write.zone = key.zone;
    write.key = view(p, key.key.len);
    p = append(p, view(key.key));
    write.hash = key.claim.key_hash();
    write.own = key.rate.own;
    write.text = view(p, text.len);
    append(p, view(text));
    write.until_s = key.rate.ttl_s != 0 ? ngx_time() + key.rate.ttl_s : kNoEnd;
    init_event<end_write>(write.done, *waited);
    waited->waiting = &key;
    return waited;
}

/* Writes the override of a key in this node's memory. */
ngx_int_t put_here(KeyRequest &key) {
    key.write = make_write(key);
    if (key.write == nullptr) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    const ngx_int_t rc = suspend_content(key.request, &key, [](void *data) {
        auto *write = static_cast<KeyRequest *>(data)->write;
        if (write != nullptr) { write->waiting = nullptr; }
    });

    if (rc == NGX_DONE) {
        write_override(key.write->write);
    } else {
        ngx_free(key.write);
    }

    return rc;
}

/* Makes the claim of the key, and finds its usual limit. */
void init_claim(KeyRequest &key) {
    ZoneConf &zone = *key.zone;
    Claim &claim = key.claim;

    claim.zone = zone.memory.table;
    claim.policy = &zone.policy;
    claim.counts = &zone.worker.counters->slots;
    claim.debts = zone.memory.aside.debts;
    claim.purpose = Purpose::kLook;
    claim.hash = zone.memory.table->hash(view(key.key));

    if (zone.variable) { key.usual = zone.memory.aside.variable_overrides->find(claim.hash); }

    if (!key.usual.is_set()) { key.usual.limit = zone.limit; }

    if (!zone.is_remote()) { return; }

    key.remote.zone = &zone.remote;
    key.remote.key = key.key;
    key.remote.source = Source::kRedis;
    claim.remote = &key.remote;
    init_event<end_reply>(key.waiter.event, key);
}

} // namespace

ngx_int_t handle_key(ngx_http_request_t *r, ZoneConf &zone) {
    auto *created = create<KeyRequest>(r->pool);
    if (created == nullptr) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    auto &key = *created;
    key.request = r;
    key.method = r->method;
    key.status = NGX_HTTP_OK;
    key.zone = &zone;

    ngx_int_t rc = read_key_arg(r, zone, &key.key);

    if (rc == NGX_DECLINED && zone.policy.is_in_flight() && r->method != NGX_HTTP_PUT
        && r->method != NGX_HTTP_GET && r->method != NGX_HTTP_HEAD) {
        return send_error(
            r, NGX_HTTP_CONFLICT,
            "%V cannot change units in flight, which are free when their requests end",
            &r->method_name);
    }

    if (rc == NGX_DECLINED && r->method == NGX_HTTP_PUT) {
        rc = read_rate_args(r, zone, &key.rate);
    }

    ChargeArgs charge = {};
    if (rc == NGX_DECLINED && r->method == NGX_HTTP_POST) { rc = read_charge_args(r, &charge); }

    bool lifts = false;
    if (rc == NGX_DECLINED && r->method == NGX_HTTP_DELETE) { rc = read_what_arg(r, zone, &lifts); }

    if (rc != NGX_DECLINED) { return rc; }

    key.units = charge.cost;
    key.takes = charge.takes;
    if (lifts) {
        lift_ban(zone, view(key.key));
        key.method = NGX_HTTP_GET;
    }

    init_claim(key);
    if (key.method == NGX_HTTP_PUT && !zone.is_remote()) { return put_here(key); }

    rc = key.method == NGX_HTTP_DELETE ? go_on(key, forget(key), look_again)
                                       : go_on(key, look(key), end_first_look);
    if (!kHasRedis || rc != NGX_AGAIN) { return rc; }

    return suspend_content(r, &key,
                           [](void *data) { leave_ask(&static_cast<KeyRequest *>(data)->waiter); });
}

} // namespace limit_sliding
