/* Copyright (C) the limit_sliding authors */

/* Keys that are addresses, costs and rates of requests, and servers that Redis names:
 * what reads them with NGINX's own functions. */

#include <arpa/inet.h>

#include <cstring>
#include <string>
#include <vector>

#include "http/conf/client_address.hpp"
#include "http/conf/written_key.hpp"
#include "http/values/rates_and_costs.hpp"
#include "input.hpp"
#include "ngx/strings.hpp"
#include "redis/wire/endpoint.hpp"

using namespace limit_sliding;
using std::string;
using std::string_view;

namespace {

/* Tells whether all bits of an address beyond a prefix are zero. */
bool is_cut(string_view address, size_t prefix) {
    for (size_t bit = prefix; bit < address.size() * 8; bit++) {
        if ((address[bit / 8] >> (7 - bit % 8) & 1) != 0) { return false; }
    }

    return true;
}

/* Tells whether the first bits of two addresses are the same. */
bool is_begin(string_view address, string_view other, size_t bits) {
    CHECK(address.size() == other.size());
    for (size_t bit = 0; bit < bits; bit++) {
        if (((address[bit / 8] ^ other[bit / 8]) >> (7 - bit % 8) & 1) != 0) { return false; }
    }

    return true;
}

/* Returns the bytes of an address, which is one of IPv4 if it is that in the form of IPv6. */
string address_of(const string &text) {
    u_char bytes[16];
    if (inet_pton(AF_INET, text.c_str(), bytes) == 1) { return string(view(bytes, 4)); }

    (void)inet_pton(AF_INET6, text.c_str(), bytes);
    const bool is_mapped = IN6_IS_ADDR_V4MAPPED(reinterpret_cast<in6_addr *>(bytes));
    return string(is_mapped ? view(bytes + 12, 4) : view(bytes, 16));
}

void check_key(fuzz::Input &input) {
    ZoneConf zone = {};
    zone.keys = static_cast<KeyKind>(input.below(3));
    zone.clients = {true, input.below(33), input.below(129)};
    const string text(input.rest().substr(0, 100));

    std::vector<u_char> room(std::max<size_t>(text.size(), 16));
    ngx_memcpy(room.data(), text.data(), text.size());
    ngx_str_t key = {text.size(), room.data()};

    const bool is_text = zone.keys == KeyKind::kTexts || text.rfind("unix:", 0) == 0;
    const bool is_key = read_key(zone, &key);
    if (is_text) {
        CHECK(is_key && view(key) == text);
        return;
    }

    u_char of_text[16];
    const bool is_address = text.find('\0') == string::npos
                            && (inet_pton(AF_INET, text.c_str(), of_text) == 1
                                || inet_pton(AF_INET6, text.c_str(), of_text) == 1);
    const bool may_be = is_address || text.size() == 4 || text.size() == 16;
    CHECK(is_key ? may_be : !is_address);
    if (!is_key) { return; }

    CHECK(key.len == 4 || key.len == 16);
    if (zone.keys == KeyKind::kClients) {
        const size_t prefix = key.len == 4 ? zone.clients.ipv4 : zone.clients.ipv6;
        CHECK(is_cut(view(key), prefix));
        if (is_address) { CHECK(is_begin(view(key), address_of(text), prefix)); }
    }

    /* its text is read as the same key, which is cut already; an address of IPv4 in the
     * form of IPv6 is one that only $binary_remote_addr has */
    u_char buf[NGX_INET6_ADDRSTRLEN];
    string again(text_of_key(zone, view(key), buf));
    const string bytes(view(key));
    again.resize(std::max<size_t>(again.size(), 16));
    ngx_str_t second = {strlen(again.c_str()), reinterpret_cast<u_char *>(again.data())};
    CHECK(read_key(zone, &second));
    CHECK(view(second) == bytes || zone.keys == KeyKind::kClients);
}

void check_numbers(fuzz::Input &input) {
    const uint64_t window_ms = kWindowMinMs + input.number() % kWindowMaxMs;
    const string_view rest = input.rest().substr(0, 60);
    std::vector<u_char> exact(rest.begin(), rest.end());
    const ngx_str_t text = {exact.size(), exact.data()};

    uint64_t cost = 7, settled = 7, limit = 7;
    const bool is_number = !rest.empty() && rest.find_first_not_of("0123456789") == rest.npos;
    const string digits(rest.substr(std::min(rest.find_first_not_of('0'), rest.size())));
    const bool is_short = digits.size() < 18;
    const uint64_t n = is_short ? strtoull(digits.c_str(), nullptr, 10) : UINT64_MAX;

    const bool is_settled = parse_settled(text, settled);
    CHECK(is_settled == (is_number && n <= kSettledMax));
    CHECK(settled == (is_settled ? n : 7));

    const bool is_cost = parse_cost(text, cost);
    CHECK(is_cost ? is_number : !is_number || !is_short);
    CHECK(cost == (is_cost ? std::min(n, kRemoteMax + 1) : 7));

    CHECK(parse_rate(text, window_ms, kLimitMax, limit) ? limit >= 1 && limit <= kLimitMax
                                                        : limit == 7);
}

void check_endpoint(fuzz::Input &input) {
    static Endpoint endpoint;
    const auto port = static_cast<int64_t>(input.number());
    const string_view rest = input.rest();
    const std::vector<char> host(rest.begin(), rest.end());
    const bool is_set = endpoint.set(string_view(host.data(), host.size()), port);
    static const char letters[]
        = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._:";
    const bool is_host = !rest.empty() && rest.find_first_not_of(letters) == rest.npos;
    CHECK(is_set == (port >= 1 && port <= 65535 && is_host && rest.size() <= kReplyHost));
    if (!is_set) { return; }

    string name(rest);
    for (char &c : name) {
        c = static_cast<char>(ngx_tolower(c));
    }

    CHECK(view(endpoint.host) == name && endpoint.port == port);
    CHECK(view(endpoint.text) == name + ":" + std::to_string(port));
    CHECK(endpoint.is_name == (endpoint.naddrs == 0) && endpoint.id() != 0);
    CHECK(endpoint.bare_host().size() <= rest.size());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    switch (input.below(4)) {
    case 0:
        check_numbers(input);
        break;
    case 1:
        check_endpoint(input);
        break;
    default:
        check_key(input);
    }

    return 0;
}
