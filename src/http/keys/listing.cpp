/* Copyright (C) the limit_sliding authors */

#include "http/keys/keys.hpp"

#include "http/json/api_response.hpp"
#include "http/json/arguments.hpp"
#include "http/overrides/file_list.hpp"
#include "ngx/containers.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

void write_override(Json &json, const ZoneConf &zone, const OverrideLine &own, uint64_t now_s) {
    json.line();
    auto object = json.object();

    json.field("key", own.key);
    json.uri_field("key_uri", own.key);
    json.field(limit_field(zone), own.text);

    const uint64_t ttl_s = own.until_s - now_s;
    json.field("ttl", own.until_s != kNoEnd ? &ttl_s : nullptr);
}

} // namespace

ngx_int_t send_overrides(ngx_http_request_t *r, ZoneConf &zone) {
    PageArgs page;
    const ngx_int_t rc = read_page_args(r, zone, &page);
    if (rc != NGX_DECLINED) { return rc; }

    Array<OverrideLine> listed;
    if (!list_overrides(zone, view(page.after), page.n, r->pool, listed, &page.place)) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    const auto now_s = static_cast<uint64_t>(ngx_time());

    return send_json(r, NGX_HTTP_OK, [&](Json &json) {
        json.field("zone", zone.name);

        {
            auto array = json.array("limits");
            for (const OverrideLine &own : listed) {
                write_override(json, zone, own, now_s);
            }
        }

        /* A place does not move, unlike the place of a key whose limit is removed meanwhile. */
        if (page.place != 0) {
            u_char text[1 + NGX_INT64_LEN];
            const u_char *end = ngx_sprintf(text, "*%uL", page.place);
            json.field("next", view(text, static_cast<size_t>(end - text)));
        } else {
            json.field("next", nullptr);
        }
    });
}

} // namespace limit_sliding
