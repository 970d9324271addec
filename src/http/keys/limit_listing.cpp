/* Copyright (C) the limit_sliding authors */

#include "http/keys/keys.hpp"

#include "http/json/arguments.hpp"
#include "http/json/response.hpp"
#include "http/overrides/override_list.hpp"
#include "ngx/array.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

void write_limit(Json &json, const ZoneConf &zone, const OverrideLine &limit, uint64_t now_s) {
    json.line();
    auto object = json.object();

    json.field("key", limit.key);
    json.uri_field("key_uri", limit.key);
    json.field(zone.policy.is_in_flight() ? "inflight" : "rate", limit.text);

    const uint64_t ttl_s = limit.until_s - now_s;
    json.field("ttl", limit.until_s != kNoEnd ? &ttl_s : nullptr);
}

} // namespace

ngx_int_t send_limits(ngx_http_request_t *r, ZoneConf &zone) {
    PageArgs page;
    const ngx_int_t rc = read_page_args(r, zone, &page);
    if (rc != NGX_DECLINED) { return rc; }

    /* One more limit than shown tells whether there is another page. */
    Array<OverrideLine> limits;
    if (!list_limits(zone, view(page.after), page.n + 1, r->pool, limits, &page.place)) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    const bool is_full = limits.size() > page.n;
    const Span<OverrideLine> shown = {limits.begin(), is_full ? page.n : limits.size()};
    const auto now_s = static_cast<uint64_t>(ngx_time());

    return send_json(r, NGX_HTTP_OK, [&](Json &json) {
        json.field("zone", zone.name);

        {
            auto array = json.array("limits");
            for (const OverrideLine &limit : shown) {
                write_limit(json, zone, limit, now_s);
            }
        }

        if (is_full) {
            json.uri_field("next", shown[shown.size() - 1].key);
        } else if (page.place != 0) {
            u_char text[1 + NGX_INT64_LEN];
            const u_char *end = ngx_sprintf(text, "*%uL", page.place);
            json.field("next", view(text, static_cast<size_t>(end - text)));
        } else {
            json.field("next", nullptr);
        }
    });
}

} // namespace limit_sliding
