/* Copyright (C) the limit_sliding authors */

/* Responses of the API. */

#pragma once

#include <string_view>

#include "http/conf/zone_conf.hpp"
#include "http/json/json.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Sends a "no-store" response.  The functions here return the result for the handler. */
ngx_int_t send_text(ngx_http_request_t *r, ngx_uint_t status, std::string_view type, Writer &text);

/* Sends an object.  The function writes its fields. */
template <class Function>
ngx_int_t send_json(ngx_http_request_t *r, ngx_uint_t status, Function function) {
    Writer text(r->pool);
    Json json(text);

    {
        auto object = json.object();
        function(json);
    }

    text.append("\n");
    return send_text(r, status, "application/json", text);
}

/* Writes two fields: the key as text, also for an address, and the text percent-encoded. */
void write_key(Json &json, const ZoneConf &zone, std::string_view key);

/* Sends an error as JSON, with a message of at most 256 bytes. */
ngx_int_t ngx_cdecl send_error(ngx_http_request_t *r, ngx_uint_t status, const char *format, ...);

} // namespace limit_sliding
