/* Copyright (C) the limit_sliding authors */

/* Requests for keys, and their answers if a key is in this node's memory. */

#include "http/keys/keys.hpp"

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

ngx_int_t answer_local(KeyRequest &key) {
    find_own(key);

    if (key.method == NGX_HTTP_DELETE) { forget_here(key); }

    const bool takes = key.method == NGX_HTTP_POST && key.charge.takes;
    if (takes && !decide_take(key)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    if (key.method == NGX_HTTP_POST) {
        const ngx_int_t rc = check_chargeable(key);
        if (rc != NGX_DECLINED) { return rc; }

        if (!takes && !charge_here(key)) {
            return send_error(key.request, NGX_HTTP_INSUFFICIENT_STORAGE, "no room for the key");
        }

        if (takes && !take_here(key)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }
    }

    return send_count(key);
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

    if (rc == NGX_DECLINED && r->method == NGX_HTTP_POST) { rc = read_charge_args(r, &key.charge); }

    bool lifts = false;
    if (rc == NGX_DECLINED && r->method == NGX_HTTP_DELETE) { rc = read_what_arg(r, zone, &lifts); }

    if (rc != NGX_DECLINED) { return rc; }

    if (lifts) {
        lift_ban(zone, view(key.key));
        key.method = NGX_HTTP_GET;
    }

    init_claim(key);
    return kHasRedis && zone.is_remote() ? handle_in_redis(key) : handle_local(key);
}

} // namespace limit_sliding
