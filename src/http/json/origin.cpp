/* Copyright (C) the limit_sliding authors */

#include "http/json/origin.hpp"

#include "ngx/array.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Returns true if the origin, such as "https://name:8080", matches the request's Host header. */
bool is_of_host(ngx_http_request_t *r, std::string_view origin) {
    const ngx_table_elt_t *host = r->headers_in.host;

    return host != nullptr && (cut_prefix(&origin, "http://") || cut_prefix(&origin, "https://"))
           && is_same_name(origin, view(host->value));
}

} // namespace

bool is_of_another_site(ngx_http_request_t *r) {
    bool is_told = false, is_other_site = false, is_other_origin = false;

    for_each<ngx_table_elt_t>(r->headers_in.headers, [&](const ngx_table_elt_t &header) {
        const std::string_view name = view(header.key);
        const std::string_view value = view(header.value);

        if (is_same_name(name, "Sec-Fetch-Site")) {
            is_told = true;
            is_other_site |= value != "same-origin" && value != "none";
        } else if (is_same_name(name, "Origin")) {
            is_other_origin |= !is_of_host(r, value);
        }
    });

    return is_told ? is_other_site : is_other_origin;
}

} // namespace limit_sliding
