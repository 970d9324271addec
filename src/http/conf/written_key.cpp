/* Copyright (C) the limit_sliding authors */

#include "http/conf/written_key.hpp"

#include <arpa/inet.h>

#include <algorithm>

#include "http/conf/client_address.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Clients of a UNIX socket have the socket's name instead of an address. */
bool is_address(const ZoneConf &zone, std::string_view key) {
    return zone.keys != KeyKind::kTexts && !starts_with(key, "unix:");
}

/* Returns the family of an address of this size, or AF_UNSPEC. */
int family_of(size_t bytes) {
#if (NGX_HAVE_INET6)
    if (bytes == 16) { return AF_INET6; }
#endif
    return bytes == 4 ? AF_INET : AF_UNSPEC;
}

/* Reads an address, written as text or as its bytes.  Returns its size in bytes, or 0 for other
 * texts.  inet_pton() is strict, while NGINX's functions accept "1..2". */
size_t read_address(std::string_view text, u_char *address) {
    const bool is_text
        = std::all_of(text.begin(), text.end(), [](u_char ch) { return ch >= ' ' && ch <= '~'; });

    if (!is_text && (text.size() == 4 || text.size() == 16)) {
        append(address, text);
        return text.size();
    }

    char string[NGX_INET6_ADDRSTRLEN + 1] = {};
    if (!is_text || text.size() >= sizeof(string)) { return 0; }

    ngx_memcpy(string, text.data(), text.size());

    for (size_t len : {4, 16}) {
        if (family_of(len) != AF_UNSPEC && inet_pton(family_of(len), string, address) == 1) {
            return len;
        }
    }

    return 0;
}

} // namespace

bool read_key(const ZoneConf &zone, ngx_str_t *key) {
    if (!is_address(zone, view(*key))) { return true; }

    alignas(in6_addr) u_char buf[sizeof(in6_addr)];
    ngx_str_t address = {read_address(view(*key), buf), buf};
    if (address.len == 0) { return false; }

    ngx_uint_t prefix = address.len * 8;

    if (zone.keys == KeyKind::kClients) {
        prefix = client_part(&address, zone.clients.ipv4, zone.clients.ipv6);
    }

    cut_to_prefix(key->data, &address, prefix);
    key->len = address.len;
    return true;
}

std::string_view text_of_key(const ZoneConf &zone, std::string_view key,
                             u_char (&buf)[NGX_INET6_ADDRSTRLEN]) {
    const int family = family_of(key.size());
    if (!is_address(zone, key) || family == AF_UNSPEC) { return key; }

    return view(buf, ngx_inet_ntop(family, bytes(key), buf, sizeof(buf)));
}

} // namespace limit_sliding
