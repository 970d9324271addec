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

/* Prints two digits a step; ngx_sprintf() takes several times as long. */
u_char *append_number(u_char *p, uint64_t n, ngx_str_t *text) {
    static const char pairs[]
        = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
          "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
          "8081828384858687888990919293949596979899";

    u_char digits[NGX_INT64_LEN];
    auto *digit = digits + sizeof(digits) - 2;
    while (n >= 100) {
        ngx_memcpy(digit, &pairs[2 * (n % 100)], 2);
        digit -= 2;
        n /= 100;
    }

    ngx_memcpy(digit, &pairs[2 * n], 2);
    digit += (n < 10);

    text->data = p;
    text->len = digits + sizeof(digits) - digit;
    return ngx_cpymem(p, digit, text->len);
}

} // namespace limit_sliding
