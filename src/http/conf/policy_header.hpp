/* Copyright (C) the limit_sliding authors */

/* Parts of header fields that do not depend on the request. */

#pragma once

#include "http/conf/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Maximum bytes of a list member besides the zone's name: two numbers. */
constexpr auto kMember = sizeof(";q=;w=, ") + 2 * NGX_INT64_LEN;

/* Sets `quoted` to the name as a string of a structured field; false: out of memory. */
bool quote_name(ngx_pool_t *pool, ZoneConf &zone);

/* Prints a member of RateLimit-Policy, such as "one";q=600;w=60, and returns its end. */
u_char *print_policy(u_char *p, ZoneConf *zone, uint64_t limit, uint64_t window_ms);

/* Prints two digits in front of `end`.  Returns their begin. */
inline u_char *print_pair(u_char *end, uint64_t pair) {
    static constexpr char kPairs[]
        = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
          "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
          "8081828384858687888990919293949596979899";

    ngx_memcpy(end - 2, &kPairs[2 * pair], 2);
    return end - 2;
}

/* Prints a number in front of `end`, at most NGX_INT64_LEN bytes.  Returns its begin.
 * ngx_sprintf() takes several times as long. */
inline u_char *print_digits(u_char *end, uint64_t n) {
    for (; n > UINT32_MAX; n /= 100) {
        end = print_pair(end, n % 100);
    }

    /* 32-bit divisions are faster. */
    auto rest = static_cast<uint32_t>(n);
    for (; rest >= 100; rest /= 100) {
        end = print_pair(end, rest % 100);
    }

    if (rest >= 10) { return print_pair(end, rest); }

    *--end = static_cast<u_char>('0' + rest);
    return end;
}

/* Prints a number, sets *text to its digits, and returns their end.  There must be room for
 * NGX_INT64_LEN bytes. */
u_char *append_number(u_char *p, uint64_t n, ngx_str_t *text);

} // namespace limit_sliding
