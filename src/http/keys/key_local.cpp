/* Copyright (C) the limit_sliding authors */

/* Requests for keys that this node decides. */

#include "core/limiter/limiter.hpp"
#include "http/json/response.hpp"
#include "http/keys/key_request.hpp"
#include "http/overrides/override_writes.hpp"
#include "http/request/suspend.hpp"
#include "ngx/event.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

/* An API write, and the request that waits for it. */
struct WaitedWrite {
    LimitWrite write;
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
    if (entry.until_s != Overrides::kNoEnd) { key.ttl_s = entry.until_s - now_s; }
}

ngx_int_t answer_local(KeyRequest &key) {
    find_own(key);

    if ((key.method == NGX_HTTP_DELETE && !forget_here(key)) || !set_limit(key, key.basis())) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (key.method == NGX_HTTP_POST) {
        const ngx_int_t rc = check_chargeable(key);
        if (rc != NGX_DECLINED) { return rc; }

        charge_here(key);
    }

    acquire(&key.claim, 1, ngx_current_msec);
    key.verdict = key.claim.describe(ngx_current_msec);
    return send_key(key);
}

ngx_int_t answer_write(KeyRequest &key, LimitWrite::Result result) {
    switch (result) {
    case LimitWrite::Result::kDone:
        return answer_local(key);
    case LimitWrite::Result::kNoRoom:
        return send_error(key.request, NGX_HTTP_INSUFFICIENT_STORAGE,
                          "no room for another limit of a key");
    case LimitWrite::Result::kDiskFull:
        return send_error(key.request, NGX_HTTP_INSUFFICIENT_STORAGE,
                          "no room in the file of limits");
    case LimitWrite::Result::kReplaced:
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
    if (key == nullptr || !is_waiting(key->request, key)) { return; }

    ngx_connection_t *c = key->request->connection;
    ngx_http_set_log_request(c->log, key->request);
    ngx_http_finalize_request(key->request, answer_write(*key, result));
    ngx_http_run_posted_requests(c);
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
    LimitWrite &write = waited->write;
    write.zone = key.zone;
    write.key = view(p, key.key.len);
    p = append(p, view(key.key));
    write.hash = key.claim.key_hash();
    write.own = key.rate.own;
    write.text = {text.len, p};
    append(p, view(text));
    write.until_s = key.rate.ttl_s != 0 ? ngx_time() + key.rate.ttl_s : 0;
    init_event<end_write>(write.done, *waited);
    waited->waiting = &key;
    return waited;
}

} // namespace

ngx_int_t handle_local(KeyRequest &key) {
    if (key.method != NGX_HTTP_PUT) { return answer_local(key); }

    ngx_http_cleanup_t *cln = ngx_http_cleanup_add(key.request, 0);
    key.write = cln != nullptr ? make_write(key) : nullptr;
    if (key.write == nullptr) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    write_override(key.write->write);
    return wait(key, cln, [](void *data) {
        auto *write = static_cast<KeyRequest *>(data)->write;
        if (write != nullptr) { write->waiting = nullptr; }
    });
}

} // namespace limit_sliding
