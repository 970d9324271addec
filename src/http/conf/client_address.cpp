/* Copyright (C) the limit_sliding authors */

#include "http/conf/client_address.hpp"

#include "http/values/parameter.hpp"
#include "ngx/conf.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

template <ngx_uint_t LocConf::*kPrefix, uint32_t kBits>
bool set_prefix(const Param &param, LocConf &conf) {
    return param.get_number("prefix", 0, kBits, conf.*kPrefix);
}

constexpr ParamRule<LocConf> rules[] = {
    {{"ipv4="}, set_prefix<&LocConf::client_ipv4, 32>},
    {{"ipv6="}, set_prefix<&LocConf::client_ipv6, 128>},
};

/* Returns true for a server{} with "location /": all of its requests end up in locations. */
bool is_covered(const ngx_http_core_loc_conf_t &place) {
    if (place.name.len != 0 || place.locations == nullptr) { return false; }

    for (auto *q = ngx_queue_head(place.locations); q != ngx_queue_sentinel(place.locations);
         q = ngx_queue_next(q)) {
        auto *location = reinterpret_cast<ngx_http_location_queue_t *>(q)->inclusive;

        if (location != nullptr && view(location->name) == "/") { return true; }
    }

    return false;
}

/* Returns the bytes of a client's address, or an empty string for a UNIX socket. */
ngx_str_t address_of(sockaddr *sa) {
#if (NGX_HAVE_INET6)
    if (sa->sa_family == AF_INET6) {
        auto *ipv6 = reinterpret_cast<sockaddr_in6 *>(sa);
        return {16, ipv6->sin6_addr.s6_addr};
    }
#endif

#if (NGX_HAVE_UNIX_DOMAIN)
    if (sa->sa_family == AF_UNIX) { return {}; }
#endif

    auto *ipv4 = reinterpret_cast<sockaddr_in *>(sa);
    return {4, reinterpret_cast<u_char *>(&ipv4->sin_addr)};
}

} // namespace

extern "C" char *ngx_http_limit_sliding_client(ngx_conf_t *cf, ngx_command_t *, void *conf) {
    auto &place = *static_cast<LocConf *>(conf);
    if (place.client_ipv4 != NGX_CONF_UNSET_UINT) { return conf_failed("is duplicate"); }

    place.client_ipv4 = kIpv4Prefix;
    place.client_ipv6 = kIpv6Prefix;
    return conf_result(set_params(cf, 1, rules, place));
}

ngx_int_t client_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t) {
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    ngx_str_t address = address_of(r->connection->sockaddr);
    if (address.len == 0) {
        v->len = r->connection->addr_text.len;
        v->data = r->connection->addr_text.data;
        return NGX_OK;
    }

    const auto &conf = loc_conf(r);
    auto prefix = client_part(&address, conf.client_ipv4, conf.client_ipv6);

    v->len = address.len;
    v->data = address.data;
    if (prefix == address.len * 8) { return NGX_OK; }

    v->data = alloc_bytes(r->pool, address.len);
    if (v->data == nullptr) { return NGX_ERROR; }

    cut_to_prefix(v->data, &address, prefix);
    return NGX_OK;
}

ngx_uint_t client_part(ngx_str_t *address, ngx_uint_t ipv4, ngx_uint_t ipv6) {
#if (NGX_HAVE_INET6)
    if (address->len == 16) {
        if (!IN6_IS_ADDR_V4MAPPED(reinterpret_cast<in6_addr *>(address->data))) { return ipv6; }

        address->data += 12;
        address->len = 4;
    }
#endif

    return ipv4;
}

void cut_to_prefix(u_char *dst, ngx_str_t *address, ngx_uint_t prefix) {
    size_t n = prefix / 8;

    ngx_memcpy(dst, address->data, n);
    ngx_memzero(dst + n, address->len - n);

    if (prefix % 8 != 0) { dst[n] = address->data[n] & (0xff << (8 - prefix % 8)); }
}

void learn_prefixes(ngx_conf_t *cf, const LocConf &conf) {
    const auto learn = [&](ZoneClients &clients) {
        clients = {true, ngx_max(clients.ipv4, conf.client_ipv4),
                   ngx_max(clients.ipv6, conf.client_ipv6)};
    };

    if (conf.api_write != NGX_CONF_UNSET) { learn(main_conf(cf).api_clients); }

    if (is_covered(core_loc_conf(cf))) { return; }

    for (auto *group : conf.groups) {
        for (; group != nullptr; group = group->next) {
            for (auto &limit : *group) {
                learn(limit.zone->clients);
            }
        }
    }
}

void set_unused_prefixes(const MainConf &main) {
    const auto &api = main.api_clients;
    for (auto *zone : main.zones) {
        if (zone->clients.known) { continue; }

        zone->clients = api.known ? api : ZoneClients{true, kIpv4Prefix, kIpv6Prefix};
    }
}

} // namespace limit_sliding
