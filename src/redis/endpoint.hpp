/* Copyright (C) the limit_sliding authors */

/* A server to connect to: its name, and what is known of its addresses. */

#pragma once

#include "redis/reply.hpp"
#include "redis/settings.hpp"

namespace limit_sliding {

struct Endpoint {
    /* Sets a server of the configuration. */
    void set(const Server &server);

    /* Sets a server that Redis has named, by its address or a name.  Returns
     * false, and changes nothing, if it cannot be one. */
    bool set(std::string_view host, int64_t port);

    /* Sets addresses as NGINX has them, such as those of a resolved name. */
    template <class Address>
    void set_addresses(const Address *from, size_t n) {
        naddrs = ngx_min(n, kAddressesMax);
        for (size_t i = 0; i < naddrs; i++) {
            ngx_memcpy(&addrs[i], from[i].sockaddr, from[i].socklen);
            ngx_inet_set_port(&addrs[i].sockaddr, port);
            lens[i] = from[i].socklen;
        }
    }

    /* Returns the host as others may know it: without the brackets of a URL. */
    std::string_view bare_host() const;

    /* Returns a number that stands for host and port, never 0: the same in all
     * workers. */
    uint64_t id() const;

    static constexpr size_t kAddressesMax = 8;

    ngx_str_t text; /* "host:port", or as it is configured */
    ngx_str_t host;
    in_port_t port;
    bool is_name; /* NGINX resolves it, and knows how long that is valid */
    size_t naddrs;
    ngx_sockaddr_t addrs[kAddressesMax];
    socklen_t lens[kAddressesMax];

private:
    u_char named_[kReplyString + sizeof(":65535")];
};

} // namespace limit_sliding
