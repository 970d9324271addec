/* Copyright (C) the limit_sliding authors */

#include "http/policy_field.hpp"

#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

/* Strings hold printable ASCII only; other bytes are shown as %XX. */
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

u_char *print_policy(u_char *p, ZoneConf *zone, uint64_t limit) {
    p = ngx_sprintf(p, "%V;q=%uL", &zone->quoted, limit);

    /* The field has whole seconds, and cannot tell shorter windows. */
    if (zone->policy.window_ms >= 1000) {
        p = ngx_sprintf(p, ";w=%uL", seconds(zone->policy.window_ms));
    }

    return p;
}

u_char *append_number(u_char *p, uint64_t n, ngx_str_t *text) {
    u_char digits[NGX_INT64_LEN];
    auto *end = digits + sizeof(digits);
    auto *first = print_digits(end, n);

    text->data = p;
    text->len = end - first;
    return ngx_cpymem(p, first, text->len);
}

} // namespace limit_sliding
