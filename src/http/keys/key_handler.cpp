/* Copyright (C) the limit_sliding authors */

/* Requests for keys, and their answers if a key is in this node's memory. */

#include "http/keys/keys.hpp"

#include <algorithm>

#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"
#include "http/json/api_response.hpp"
#include "http/json/arguments.hpp"
#include "http/keys/key_operations.hpp"
#include "http/overrides/api_writes.hpp"
#include "http/request/penalties.hpp"
#include "http/request/suspend.hpp"
#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

/* An API write, and the request that waits for it. */
struct WaitedWrite {
    OverrideWrite write;
    KeyRequest *waiting; /* nullptr: the client has left */
};

namespace {

void find_own(KeyRequest &key) {
    const auto now_s = static_cast<uint64_t>(ngx_time());
    Overrides::Entry entry;
    if (!key.zone->memory.aside.overrides->find(key.claim.key_hash(), &entry)
        || entry.until_s <= now_s) {
        return;
    }

    key.own = entry.own;
    if (entry.until_s != kNoEnd) { key.ttl_s = entry.until_s - now_s; }
}

/* Charges the units, or takes them if the limit has room.  Returns NGX_DECLINED, or sends an error.
 */
ngx_int_t post_local(KeyRequest &key) {
    if (key.takes && !decide_take(key)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    if (key.method != NGX_HTTP_POST) { return NGX_DECLINED; }

    const ngx_int_t rc = check_chargeable(key);
    if (rc != NGX_DECLINED) { return rc; }

    key.set_limit(key.basis());
    Claim claim = as_local(key.claim);
    if (!key.takes) {
        uint64_t lost;
        return settle_here(claim, key.units, &lost)
                   ? NGX_DECLINED
                   : send_error(key.request, NGX_HTTP_INSUFFICIENT_STORAGE, "no room for the key");
    }

    claim.purpose = Purpose::kConsume;
    claim.cost = std::min<uint64_t>(key.units, kCostMax);
    acquire(&claim, 1, ngx_current_msec);
    return is_admitted(claim) || reject_take(key, claim.retry_after_ms(ngx_current_msec))
               ? NGX_DECLINED
               : NGX_HTTP_INTERNAL_SERVER_ERROR;
}

ngx_int_t answer_local(KeyRequest &key) {
    find_own(key);

    if (key.method == NGX_HTTP_DELETE) { forget_here(key, Facts::kHistory); }

    const ngx_int_t rc = key.method == NGX_HTTP_POST ? post_local(key) : NGX_DECLINED;
    return rc == NGX_DECLINED ? send_count(key) : rc;
}

ngx_int_t answer_write(KeyRequest &key, OverrideWrite::Result result) {
    switch (result) {
    case OverrideWrite::Result::kDone:
        return answer_local(key);
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

/* Answers a request for a key in this node's memory. */
ngx_int_t handle_local(KeyRequest &key) {
    if (key.method != NGX_HTTP_PUT) { return answer_local(key); }

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
    return kHasRedis && zone.is_remote() ? handle_in_redis(key) : handle_local(key);
}

} // namespace limit_sliding
