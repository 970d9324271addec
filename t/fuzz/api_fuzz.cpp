/* Copyright (C) the limit_sliding authors */

/* Arguments of requests to the API, percent-encoded as they come: what is taken is what
 * was encoded, and what is not has one error. */

#include "http/json/arguments.hpp"

#include <string>
#include <vector>

#include "core/policy/override_line.hpp"
#include "core/table/zone.hpp"
#include "http/conf/configuration.hpp"
#include "http/json/api_response.hpp"
#include "input.hpp"
#include "ngx/strings.hpp"

using std::string;
using std::string_view;

namespace limit_sliding {

namespace {
int errors;
} // namespace

/* In place of the one that sends it. */
ngx_int_t ngx_cdecl send_error(ngx_http_request_t *, ngx_uint_t status, const char *format, ...) {
    u_char message[256];
    va_list args;
    va_start(args, format);
    const u_char *end = ngx_vslprintf(message, message + sizeof(message), format, args);
    va_end(args);
    CHECK(status == NGX_HTTP_BAD_REQUEST && end > message);
    errors++;
    return NGX_OK;
}

} // namespace limit_sliding

using namespace limit_sliding;

namespace {

/* A function of the API takes an argument, or has sent one error. */
bool is_taken(ngx_int_t rc) {
    CHECK(rc == (errors == 0 ? NGX_DECLINED : NGX_OK) && errors <= 1);
    const bool taken = errors == 0;
    errors = 0;
    return taken;
}

string encoded(string_view text) {
    static const char hex[] = "0123456789abcdef";
    string encoded;
    for (const char c : text) {
        encoded += '%';
        encoded += hex[static_cast<u_char>(c) >> 4];
        encoded += hex[c & 15];
    }

    return encoded;
}

void read_all(ngx_http_request_t *r, const ZoneConf &zone) {
    ngx_str_t key;
    if (is_taken(read_key_arg(r, zone, &key))) {
        CHECK(key.len != 0 && key.len <= OverrideLine::kKeyMax);
        if (zone.keys != KeyKind::kTexts && view(key).rfind("unix:", 0) != 0) {
            CHECK(key.len == 4 || key.len == 16);
        }
    }

    RateArgs rate = {};
    if (is_taken(read_rate_args(r, zone, &rate))) {
        CHECK(rate.own.is_set() || view(rate.text) == "default");
        CHECK(rate.ttl_s >= 0 && rate.ttl_s <= 10 * 365 * 86400);
    }

    ChargeArgs charge = {};
    if (is_taken(read_charge_args(r, &charge))) {
        CHECK(charge.cost != 0 && std::abs(charge.cost) <= static_cast<int64_t>(kSettledMax));
        CHECK(charge.cost > 0 || !charge.takes);
    }

    bool is_ban = false;
    if (is_taken(read_what_arg(r, zone, &is_ban))) { CHECK(!is_ban || zone.rejected.are_banned()); }

    PageArgs page = {};
    if (is_taken(read_page_args(r, zone, &page))) { CHECK(page.n >= 1 && page.n <= 1000); }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static ngx_log_t log;
    static LocConf conf;
    static void *confs[1] = {&conf};
    fuzz::Input input(data, size);

    ZoneConf zone = {};
    zone.keys = static_cast<KeyKind>(input.below(3));
    zone.policy.algorithm = static_cast<Algorithm>(input.below(5));
    zone.policy.window_ms = 60000;
    zone.rejected.penalty.penalty_ms = input.flag();
    conf.client_ipv4 = 24;
    conf.client_ipv6 = 64;

    ngx_http_request_t r = {};
    r.pool = ngx_create_pool(4096, &log);
    r.loc_conf = confs;

    /* the arguments as they are, in memory that ends with them */
    const string text(input.rest());
    std::vector<u_char> exact(text.begin(), text.end());
    r.args = {exact.size(), exact.data()};
    read_all(&r, zone);

    /* a key of all the bytes, encoded */
    zone.keys = KeyKind::kTexts;
    string args = "key=" + encoded(text);
    r.args = {args.size(), reinterpret_cast<u_char *>(args.data())};
    ngx_str_t key;
    CHECK(is_taken(read_key_arg(&r, zone, &key)) == !text.empty());
    CHECK(text.empty() || view(key) == text);

    ngx_destroy_pool(r.pool);
    return 0;
}
