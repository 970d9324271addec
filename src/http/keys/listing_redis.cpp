/* Copyright (C) the limit_sliding authors */

#include "http/json/api_response.hpp"
#include "http/json/arguments.hpp"
#include "http/keys/keys.hpp"
#include "http/request/suspend.hpp"
#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/errands/redis_instance.hpp"
#include "redis/lists/pages.hpp"

namespace limit_sliding {
namespace {

/* A request for a page, which waits for Redis. */
struct ListRequest {
    ngx_http_request_t *request;
    ZoneConf *zone;
    ScanPage *page;
    ngx_event_t done;
};

void write_override(Json &json, const ZoneConf &zone, bool is_digest, const ScannedOverride &own) {
    json.line();
    auto object = json.object();
    if (is_digest) {
        json.field("key", own.key);
    } else {
        write_key(json, zone, view(own.key));
    }

    json.field(limit_field(zone), own.text.data != nullptr ? &own.text : nullptr);

    const auto ttl = static_cast<uint64_t>((own.ttl_ms + 999) / 1000);
    json.field("ttl", own.ttl_ms >= 0 ? &ttl : nullptr);
}

ngx_int_t send_page(const ListRequest &list) {
    const ScanPage &page = *list.page;
    const bool is_digest = list.zone->remote.redis->settings.key_format == KeyFormat::kDigest;

    return send_json(list.request, NGX_HTTP_OK, [&](Json &json) {
        json.field("zone", list.zone->name);
        json.field("digest", is_digest);
        {
            auto array = json.array("limits");
            for (const ScannedOverride &own : page.overrides) {
                if (!own.is_gone) { write_override(json, *list.zone, is_digest, own); }
            }
        }

        char text[kScanPositionBytes];
        const std::string_view next
            = {text, page.has_next ? write_scan_position(page.next, text) : 0};
        json.field("next", page.has_next ? &next : nullptr);
    });
}

ngx_int_t send_result(const ListRequest &list) {
    ngx_http_request_t *r = list.request;
    switch (list.page->result) {
    case ScanResult::kDone:
        return send_page(list);
    case ScanResult::kRefused:
        return send_error(r, NGX_HTTP_BAD_GATEWAY, "redis did not do it, see the log");
    case ScanResult::kMoved:
        return send_error(r, NGX_HTTP_CONFLICT,
                          "redis has other servers by now, the list must begin anew");
    case ScanResult::kWaits:
    case ScanResult::kAway:
        break;
    }

    return send_error(r, NGX_HTTP_SERVICE_UNAVAILABLE, "redis does not answer");
}

void end_page(ListRequest &list) {
    answer(list.request, &list, [&] { return send_result(list); });
}

} // namespace

ngx_int_t send_overrides_of_redis(ngx_http_request_t *r, ZoneConf &zone) {
    auto *list = create<ListRequest>(r->pool);
    if (list == nullptr) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    list->request = r;
    list->zone = &zone;
    ScanPosition from;
    size_t most;
    const ngx_int_t rc = read_scan_args(r, &from, &most);
    if (rc != NGX_DECLINED) { return rc; }

    init_event<end_page>(list->done, *list);
    list->page = scan_overrides(zone.remote, from, most, &list->done);
    if (list->page == nullptr) {
        return send_error(r, NGX_HTTP_SERVICE_UNAVAILABLE, "redis does not answer");
    }

    return suspend_content(r, list,
                           [](void *data) { leave_scan(static_cast<ListRequest *>(data)->page); });
}

} // namespace limit_sliding
