/* Copyright (C) the limit_sliding authors */

#include "http/json/arguments.hpp"

#include <algorithm>

#include "core/policy/override_line.hpp"
#include "core/policy/rate.hpp"
#include "http/conf/written_key.hpp"
#include "http/json/api_response.hpp"
#include "http/values/rates_and_costs.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* A year has 365 days here, as in NGINX's times. */
constexpr time_t kTtlMax = 10 * 365 * 24 * 60 * 60;

constexpr ngx_int_t kPageDefault = 100;
constexpr ngx_int_t kPageMax = 1000;

/* Maximum bytes of a value that an error quotes. */
constexpr size_t kQuoted = 48;

/* Sends an error.  The values of the format end with %V%s, which quotes `value`. */
template <class... Args>
ngx_int_t send_wrong(ngx_http_request_t *r, const char *format, std::string_view value,
                     Args... args) {
    ngx_str_t quoted = to_str(first(value, kQuoted));
    return send_error(r, NGX_HTTP_BAD_REQUEST, format, args..., &quoted,
                      value.size() > kQuoted ? "..." : "");
}

/* Reads an optional argument.  The text is empty if the argument is absent. */
ngx_int_t read_arg(ngx_http_request_t *r, const char *name, ngx_str_t *text) {
    ngx_str_t arg;

    *text = {};
    if (ngx_http_arg(r, bytes(name), ngx_strlen(name), &arg) != NGX_OK) { return NGX_DECLINED; }

    if (arg.len == 0) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, "\"%s\" must not be empty", name);
    }

    const u_char *last = arg.data + arg.len;
    for (u_char *p = arg.data; p < last; p++) {
        if (*p == '%' && (last - p < 3 || ngx_hextoi(p + 1, 2) == NGX_ERROR)) {
            return send_wrong(r, "\"%s\" must be percent-encoded, not \"%V%s\"", view(arg), name);
        }
    }

    /* The bytes of an address may replace its text. */
    u_char *dst = alloc_bytes(r->pool, std::max<size_t>(arg.len, 16));
    if (dst == nullptr) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    text->data = dst;
    ngx_unescape_uri(&dst, &arg.data, arg.len, 0);
    text->len = dst - text->data;
    return NGX_DECLINED;
}

/* Reads a required argument. */
ngx_int_t need_arg(ngx_http_request_t *r, const char *name, ngx_str_t *text) {
    const ngx_int_t rc = read_arg(r, name, text);
    if (rc != NGX_DECLINED || text->len != 0) { return rc; }

    return send_error(r, NGX_HTTP_BAD_REQUEST, "\"%s\" must be given", name);
}

/* Converts a key to the form that keys of requests have. */
ngx_int_t make_key(ngx_http_request_t *r, const ZoneConf &zone, const char *name, ngx_str_t *key) {
    const ngx_str_t text = *key;

    /* No line in a file of overrides has room for such a key. */
    if (text.len > OverrideLine::kKeyMax) {
        return send_wrong(r, "\"%s\" must not be longer than 65535 bytes, as \"%V%s\"", view(text),
                          name);
    }

    if (read_key(zone, key)) { return NGX_DECLINED; }

    return send_wrong(r,
                      "\"%s\" must be an address, as \"192.0.2.7\" or \"2001:db8::1\", "
                      "not \"%V%s\"",
                      view(text), name);
}

/* Sends an error about a rate that is out of bounds. */
ngx_int_t send_wrong_limit(ngx_http_request_t *r, const ZoneConf &zone, std::string_view text,
                           const Rate &rate, uint64_t window_ms) {
    const uint64_t n = rate.limit(window_ms);
    return send_wrong(r,
                      "\"rate\" must allow 1 to %uL requests in a window of %uL ms, "
                      "not %s%uL as \"%V%s\"",
                      text, zone.limit_max(), window_ms, n == UINT64_MAX ? "more than " : "", n);
}

/* Sends an error about a rate with a window. */
ngx_int_t send_wrong_window(ngx_http_request_t *r, const ZoneConf &zone, std::string_view text,
                            size_t slash) {
    const std::string_view number = first(text, slash);
    const std::string_view name = {text.data() + slash + 1, text.size() - slash - 1};
    Rate rate;
    Window window;

    if (!rate.parse(number) || rate.per_ms != 0) {
        return send_wrong(r,
                          "\"rate\" must have a positive integer of 18 digits at most before "
                          "its window, not \"%V%s\"",
                          number);
    }

    if (!window.parse(name)) {
        return send_wrong(r,
                          "\"rate\" must have a window from 100ms to 30d, or \"day\", \"week\", "
                          "\"month\" or \"year\", not \"%V%s\"",
                          name);
    }

    if (window.calendar != Calendar::kNone && zone.policy.algorithm != Algorithm::kFixed) {
        return send_wrong(r,
                          "\"rate\" must have a window from 100ms to 30d, as the zone is not "
                          "\"algorithm=fixed\", not \"%V%s\"",
                          name);
    }

    return send_wrong_limit(r, zone, text, rate, window.ms);
}

ngx_int_t send_wrong_rate(ngx_http_request_t *r, const ZoneConf &zone, std::string_view text) {
    if (zone.policy.is_in_flight()) {
        return send_wrong(r,
                          "\"inflight\" must be an integer from 1 to %uL, or \"0\", \"off\" or "
                          "\"default\", not \"%V%s\"",
                          text, zone.limit_max());
    }

    Rate rate;
    if (rate.parse(text)) { return send_wrong_limit(r, zone, text, rate, zone.policy.window_ms); }

    const size_t slash = text.find('/');
    if (slash != std::string_view::npos && (slash == 0 || text[slash - 1] != 'r')) {
        return send_wrong_window(r, zone, text, slash);
    }

    return send_wrong(r,
                      "\"rate\" must be as \"10r/s\", \"100\" or \"1000/1h\", or \"0\", \"off\" "
                      "or \"default\", not \"%V%s\"",
                      text);
}

ngx_int_t read_ttl(ngx_http_request_t *r, RateArgs *rate) {
    ngx_str_t text;
    const ngx_int_t rc = read_arg(r, "ttl", &text);
    if (rc != NGX_DECLINED || text.len == 0) { return rc; }

    rate->ttl_s = ngx_parse_time(&text, 1);
    if (rate->ttl_s < 1 || rate->ttl_s > kTtlMax) {
        return send_wrong(r,
                          "\"ttl\" must be a time from 1s to 10y, as \"90s\" or \"7d\", "
                          "not \"%V%s\"",
                          view(text));
    }

    if (rate->own.is_set()) { return NGX_DECLINED; }

    return send_wrong(r, "\"ttl\" must not be given with the rate \"default\", as \"%V%s\"",
                      view(text));
}

/* Reads the number of entries of a page; text.data is nullptr if the argument is absent. */
ngx_int_t read_page_size(ngx_http_request_t *r, const ngx_str_t &text, size_t *size) {
    const ngx_int_t n = text.data != nullptr ? ngx_atoi(text.data, text.len) : kPageDefault;
    *size = n;
    return n >= 1 && n <= kPageMax
               ? NGX_DECLINED
               : send_wrong(r, "\"n\" must be an integer from 1 to 1000, not \"%V%s\"", view(text));
}

/* Reads a place that a list has returned, such as "*5".  Keys in lists have "*" encoded. */
bool read_place(ngx_http_request_t *r, uint64_t *place) {
    ngx_str_t arg;
    if (ngx_http_arg(r, bytes("after"), 5, &arg) != NGX_OK || arg.len < 2 || arg.data[0] != '*') {
        return false;
    }

    const off_t n = ngx_atoof(arg.data + 1, arg.len - 1);
    if (n < 0) { return false; }

    *place = static_cast<uint64_t>(n);
    return true;
}

} // namespace

ngx_int_t read_key_arg(ngx_http_request_t *r, const ZoneConf &zone, ngx_str_t *key) {
    const ngx_int_t rc = need_arg(r, "key", key);
    return rc == NGX_DECLINED ? make_key(r, zone, "key", key) : rc;
}

ngx_int_t read_rate_args(ngx_http_request_t *r, const ZoneConf &zone, RateArgs *rate) {
    const char *name = zone.policy.is_in_flight() ? "inflight" : "rate";
    const ngx_int_t rc = need_arg(r, name, &rate->text);
    if (rc != NGX_DECLINED) { return rc; }

    const std::string_view text = view(rate->text);
    if (text != "default" && !rate->own.parse(text, zone.policy, zone.limit_max())) {
        return send_wrong_rate(r, zone, text);
    }

    return read_ttl(r, rate);
}

ngx_int_t read_charge_args(ngx_http_request_t *r, ChargeArgs *charge) {
    ngx_str_t text;
    ngx_int_t rc = read_arg(r, "take", &text);
    charge->takes = text.len != 0;
    if (rc == NGX_DECLINED && charge->takes && view(text) != "1") {
        rc = send_wrong(r, "\"take\" must be \"1\", not \"%V%s\"", view(text));
    }

    if (rc == NGX_DECLINED) { rc = need_arg(r, "cost", &text); }

    if (rc != NGX_DECLINED) { return rc; }

    const bool is_negative = text.data[0] == '-';
    const ngx_str_t digits = {text.len - is_negative, text.data + is_negative};
    uint64_t n;
    if (!parse_settled(digits, n) || n == 0) {
        return send_wrong(r,
                          "\"cost\" must be an integer from 1 to 2^53, or from -2^53 to -1, "
                          "not \"%V%s\"",
                          view(text));
    }

    if (is_negative && charge->takes) {
        return send_wrong(r, "\"cost\" must be positive with \"take=1\", not \"%V%s\"", view(text));
    }

    charge->cost = is_negative ? -static_cast<int64_t>(n) : static_cast<int64_t>(n);
    return NGX_DECLINED;
}

ngx_int_t read_what_arg(ngx_http_request_t *r, const ZoneConf &zone, bool *is_ban) {
    ngx_str_t text;
    const ngx_int_t rc = read_arg(r, "what", &text);
    *is_ban = text.len != 0;
    if (rc != NGX_DECLINED || text.len == 0) { return rc; }

    if (view(text) != "ban") {
        return send_wrong(r, "\"what\" must be \"ban\", not \"%V%s\"", view(text));
    }

    if (zone.rejected.are_banned()) { return NGX_DECLINED; }

    return send_wrong(r, "\"what\" must not be \"%V%s\", as the zone has no \"penalty=\"",
                      view(text));
}

ngx_int_t read_page_args(ngx_http_request_t *r, const ZoneConf &zone, PageArgs *page) {
    ngx_str_t text;
    *page = {};

    ngx_int_t rc = NGX_DECLINED;
    if (!read_place(r, &page->place)) {
        rc = read_arg(r, "after", &page->after);
        if (rc == NGX_DECLINED && page->after.len != 0) {
            rc = make_key(r, zone, "after", &page->after);
        }
    }

    if (rc == NGX_DECLINED) { rc = read_arg(r, "n", &text); }

    return rc == NGX_DECLINED ? read_page_size(r, text, &page->n) : rc;
}

ngx_int_t read_scan_args(ngx_http_request_t *r, ScanPosition *from, size_t *n) {
    ngx_str_t arg;
    if (ngx_http_arg(r, bytes("after"), 5, &arg) == NGX_OK
        && !read_scan_position(view(arg), from)) {
        return send_wrong(r, "\"after\" must be a \"next\" of this list, not \"%V%s\"", view(arg));
    }

    const bool is_given = ngx_http_arg(r, bytes("n"), 1, &arg) == NGX_OK;
    return read_page_size(r, is_given ? arg : ngx_str_t{}, n);
}

} // namespace limit_sliding
