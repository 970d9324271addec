/* Copyright (C) the limit_sliding authors */

#include "http/conf/policy_header.hpp"

#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

/* Structured fields hold printable ASCII only, so other bytes become %XX. */
bool quote_name(ngx_pool_t *pool, ZoneConf &zone) {
    auto *p = alloc_bytes(pool, 3 * zone.name.len + 2);
    if (p == nullptr) { return false; }

    zone.quoted.data = p;
    *p++ = '"';

    for (unsigned char ch : view(zone.name)) {
        if (ch < ' ' || ch > '~') {
            p = ngx_sprintf(p, "%%%02Xd", ch);
            continue;
        }

        if (ch == '"' || ch == '\\') { *p++ = '\\'; }

        *p++ = ch;
    }

    *p++ = '"';
    zone.quoted.len = p - zone.quoted.data;
    return true;
}

u_char *print_policy(u_char *p, ZoneConf *zone, uint64_t limit, uint64_t window_ms) {
    p = ngx_sprintf(p, "%V;q=%uL", &zone->quoted, limit);

    /* The field has whole seconds, so shorter windows are omitted. */
    if (window_ms >= 1000) { p = ngx_sprintf(p, ";w=%uL", seconds(window_ms)); }

    return p;
}

u_char *append_number(u_char *p, uint64_t n, ngx_str_t *text) {
    u_char digits[2 * NGX_INT64_LEN] = {};
    u_char *const end = digits + NGX_INT64_LEN;
    const u_char *begin = print_digits(end, n);

    /* A copy of a fixed size takes fewer instructions than one of the digits alone. */
    ngx_memcpy(p, begin, NGX_INT64_LEN);
    *text = {static_cast<size_t>(end - begin), p};
    return p + text->len;
}

} // namespace limit_sliding
