/* Copyright (C) the limit_sliding authors */

#include "http/keys/key_handler.hpp"

#include "http/json/arguments.hpp"
#include "http/keys/key_request.hpp"
#include "http/request/bans.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

ngx_int_t handle_key(ngx_http_request_t *r, ZoneConf &zone) {
    auto *created = create<KeyRequest>(r->pool);
    if (created == nullptr) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    auto &key = *created;
    key.request = r;
    key.method = r->method;
    key.zone = &zone;

    ngx_int_t rc = read_key_arg(r, zone, &key.key);

    if (rc == NGX_DECLINED && r->method == NGX_HTTP_PUT) {
        rc = read_rate_args(r, zone, &key.rate);
    }

    if (rc == NGX_DECLINED && r->method == NGX_HTTP_POST) { rc = read_cost_arg(r, &key.cost); }

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
