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

namespace {

struct PowersOfTen {
    uint64_t power[20] = {1};

    constexpr PowersOfTen() {
        for (size_t i = 1; i < 20; i++) {
            power[i] = 10 * power[i - 1];
        }
    }
};

constexpr PowersOfTen kTens;

/* Returns the number of decimal digits.  1233/4096 is a little more than log 2 / log 10, so the
 * first estimate is right or one too small. */
size_t count_digits(uint64_t n) {
    size_t bits = 64 - __builtin_clzll(n | 1);
    size_t digits = bits * 1233 >> 12;

    return digits + (n >= kTens.power[digits] || digits == 0);
}

} // namespace

u_char *append_number(u_char *p, uint64_t n, ngx_str_t *text) {
    text->data = p;
    text->len = count_digits(n);
    print_digits(p + text->len, n);
    return p + text->len;
}

} // namespace limit_sliding
