/* Copyright (C) the limit_sliding authors */

/* A server to connect to: its name, and its known addresses. */

#pragma once

#include <algorithm>

#include "redis/wire/reply.hpp"
#include "redis/wire/settings.hpp"

namespace limit_sliding {

/* Parses a literal address without brackets.  Returns its length in bytes, or 0 if the host is no
 * address. */
socklen_t parse_address(const ngx_str_t &host, ngx_sockaddr_t *address);

struct Endpoint {
    /* Sets the endpoint to a server of the configuration. */
    void set(const Server &server);

    /* Sets the endpoint to a server that Redis has named by an address or a name, which is
     * converted to lower case, as NGINX resolves names.  Returns false, and changes nothing, if
     * the host or the port is invalid. */
    bool set(std::string_view host, int64_t port);

    struct Address {
        socklen_t len;
        ngx_sockaddr_t address;
    };

    /* Sets up to kAddressesMax of n addresses in a form of NGINX, such as ngx_resolver_addr_t, and
     * sorts them, because resolvers rotate them. */
    template <class From>
    void set_addresses(const From *from, size_t n) {
        naddrs = ngx_min(n, kAddressesMax);
        for (size_t i = 0; i < naddrs; i++) {
            addrs[i].len = from[i].socklen;
            ngx_memcpy(&addrs[i].address, from[i].sockaddr, from[i].socklen);
            ngx_inet_set_port(&addrs[i].address.sockaddr, port);
        }

        std::sort(addrs, addrs + naddrs, [](const Address &a, const Address &b) {
            return std::string_view(reinterpret_cast<const char *>(&a.address), a.len)
                   < std::string_view(reinterpret_cast<const char *>(&b.address), b.len);
        });
    }

    /* Returns the host without the brackets of a URL. */
    std::string_view bare_host() const;

    /* Returns a hash of host and port, equal in all workers and never 0. */
    uint64_t id() const;

    static constexpr size_t kAddressesMax = 32;

    ngx_str_t text; /* "host:port", or the text of the configuration */
    ngx_str_t host;
    in_port_t port;
    bool is_name; /* NGINX resolves the host, and caches the result while it is valid */
    size_t naddrs;
    Address addrs[kAddressesMax];

private:
    u_char named_[kReplyHost + sizeof(":65535")];
};

} // namespace limit_sliding
