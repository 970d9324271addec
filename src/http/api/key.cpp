/* Copyright (C) the limit_sliding authors */

#include "http/api/key.hpp"

#include "http/api/arguments.hpp"
#include "http/api/key_request.hpp"
#include "http/key_text.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

void write_key(Json &json, const ZoneConf &zone, std::string_view key) {
    u_char buf[NGX_INET6_ADDRSTRLEN];
    const auto text = text_of_key(zone, key, buf);

    json.field("key", text);
    json.uri_field("key_uri", text);
}

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
