/* Copyright (C) the limit_sliding authors */

/* A server to connect to: its name, and its known addresses. */

#pragma once

#include "redis/wire/reply.hpp"
#include "redis/wire/settings.hpp"

namespace limit_sliding {

struct Endpoint {
    /* Sets the endpoint to a server of the configuration. */
    void set(const Server &server);

    /* Sets the endpoint to a server that Redis has named by an address or a name, which is
     * converted to lower case, as NGINX resolves names.  Returns false, and changes nothing, if
     * the host or the port is invalid. */
    bool set(std::string_view host, int64_t port);

    /* Sets n addresses in a form of NGINX, such as ngx_resolver_addr_t, in sorted order, because
     * resolvers rotate them.  The first one is number `start`, modulo n, of this order; at most
     * kAddressesMax are kept. */
    template <class Address>
    void set_addresses(const Address *from, size_t n, size_t start) {
        first = start;
        naddrs = ngx_min(n, kAddressesMax);
        for (size_t i = 0; i < n; i++) {
            size_t to = (count_before(from, n, i) + n - start % n) % n;
            if (to >= naddrs) { continue; }

            ngx_memcpy(&addrs[to], from[i].sockaddr, from[i].socklen);
            ngx_inet_set_port(&addrs[to].sockaddr, port);
            lens[to] = from[i].socklen;
        }
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
    size_t first; /* number of addrs[0] among all sorted addresses, modulo their number */
    size_t naddrs;
    ngx_sockaddr_t addrs[kAddressesMax];
    socklen_t lens[kAddressesMax];

private:
    /* Returns how many addresses are sorted before this one. */
    template <class Address>
    static size_t count_before(const Address *all, size_t n, size_t one) {
        size_t before = 0;
        for (size_t i = 0; i < n; i++) {
            int order = ngx_memn2cmp(reinterpret_cast<u_char *>(all[i].sockaddr),
                                     reinterpret_cast<u_char *>(all[one].sockaddr), all[i].socklen,
                                     all[one].socklen);
            if (order < 0 || (order == 0 && i < one)) { before++; }
        }
        return before;
    }

    u_char named_[kReplyHost + sizeof(":65535")];
};

} // namespace limit_sliding
