/* Copyright (C) the limit_sliding authors */

#include "http/api/key_handler.hpp"

#include "http/api/arguments.hpp"
#include "http/api/key_local.hpp"
#include "http/api/key_redis.hpp"
#include "http/api/key_request.hpp"
#include "ngx/memory.hpp"

namespace limit_sliding {

ngx_int_t handle_key(ngx_http_request_t *r, ZoneConf &zone) {
    auto *created = create<KeyRequest>(r->pool);
    if (created == nullptr) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    auto &key = *created;
    key.request = r;
    key.zone = &zone;

    ngx_int_t rc = read_key_arg(r, zone, &key.key);

    if (rc == NGX_DECLINED && r->method == NGX_HTTP_PUT) {
        rc = read_rate_args(r, zone, &key.rate);
    }

    if (rc == NGX_DECLINED && r->method == NGX_HTTP_POST) { rc = read_cost_arg(r, &key.cost); }

    if (rc != NGX_DECLINED) { return rc; }

    init_claim(key);
    return zone.redis != nullptr ? handle_in_redis(key) : handle_local(key);
}

} // namespace limit_sliding
