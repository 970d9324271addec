/* Copyright (C) the limit_sliding authors */

#include "http/json/api_response.hpp"

#include "http/conf/written_key.hpp"
#include "http/response/headers.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

ngx_int_t send_text(ngx_http_request_t *r, ngx_uint_t status, std::string_view type, Writer &text) {
    if (text.failed() || !push_header(r, "Cache-Control", to_str("no-store"))) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    auto &out = r->headers_out;

    out.status = status;
    out.content_length_n = text.size();
    out.content_type = to_str(type);
    out.content_type_len = first(type, type.find(';')).size();
    out.content_type_lowcase = nullptr;

    const ngx_int_t rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) { return rc; }

    return ngx_http_output_filter(r, text.finish(r == r->main));
}

void write_key(Json &json, const ZoneConf &zone, std::string_view key) {
    u_char buf[NGX_INET6_ADDRSTRLEN];
    const auto text = text_of_key(zone, key, buf);

    json.field("key", text);
    json.uri_field("key_uri", text);
}

ngx_int_t ngx_cdecl send_error(ngx_http_request_t *r, ngx_uint_t status, const char *format, ...) {
    u_char message[256];
    va_list args;

    va_start(args, format);
    const u_char *end = ngx_vslprintf(message, message + sizeof(message), format, args);
    va_end(args);
    return send_json(r, status, [&](Json &json) {
        json.field("status", status);
        json.field("error", view(message, end - message));
    });
}

} // namespace limit_sliding
