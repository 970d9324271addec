/* Copyright (C) the limit_sliding authors */

#include "redis/wire/endpoint.hpp"

#include "core/base/hashes.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

/* Returns true if a name or an address may have these characters, which are safe to log. */
bool is_host(std::string_view text) {
    for (char c : text) {
        const bool is_letter = ngx_tolower(c) >= 'a' && ngx_tolower(c) <= 'z';
        if (!is_letter && !(c >= '-' && c <= ':' && c != '/') && c != '_') { return false; }
    }
    return !text.empty();
}

} // namespace

socklen_t parse_address(const ngx_str_t &host, ngx_sockaddr_t *address) {
    in_addr_t ipv4 = ngx_inet_addr(host.data, host.len);
    *address = {};
    if (ipv4 != INADDR_NONE) {
        address->sockaddr_in.sin_family = AF_INET;
        address->sockaddr_in.sin_addr.s_addr = ipv4;
        return sizeof(sockaddr_in);
    }

#if (NGX_HAVE_INET6)
    sockaddr_in6 &ipv6 = address->sockaddr_in6;
    if (ngx_inet6_addr(host.data, host.len, ipv6.sin6_addr.s6_addr) == NGX_OK) {
        ipv6.sin6_family = AF_INET6;
        return sizeof(sockaddr_in6);
    }
#endif

    return 0;
}

void Endpoint::set(const Server &server) {
    text = server.text;
    host = server.url.host;
    port = server.url.port;
    is_name = server.url.naddrs == 0;
    set_addresses(server.url.addrs, server.url.naddrs);
}

bool Endpoint::set(std::string_view name, int64_t number) {
    if (number < 1 || number > 65535 || !is_host(name) || name.size() > kReplyHost) {
        return false;
    }

    ngx_strlow(named_, bytes(name), name.size());
    u_char *end = ngx_sprintf(named_ + name.size(), ":%L", number);
    text = to_str(view(named_, end - named_));
    host = to_str(view(named_, name.size()));
    port = static_cast<in_port_t>(number);

    addrs[0].len = parse_address(host, &addrs[0].address);
    is_name = addrs[0].len == 0;
    naddrs = is_name ? 0 : 1;
    if (!is_name) { ngx_inet_set_port(&addrs[0].address.sockaddr, port); }
    return true;
}

std::string_view Endpoint::bare_host() const {
    return host.len > 2 && host.data[0] == '[' ? view(host.data + 1, host.len - 2) : view(host);
}

uint64_t Endpoint::id() const {
    std::string_view name = bare_host();
    uint64_t hash = SipHash13(port, 0).hash(name.data(), name.size());
    return hash != 0 ? hash : 1;
}

} // namespace limit_sliding
