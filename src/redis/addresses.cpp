/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/addresses.hpp"

#include "ngx/array.hpp"
#include "ngx/pool.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

bool is_localhost(const ngx_str_t &host)
{
    constexpr std::string_view kLocalhost = "localhost";

    return host.len == kLocalhost.size()
           && ngx_strncasecmp(host.data, bytes(kLocalhost), host.len) == 0;
}

/* The addresses of the last cycle go with it.  Their names are not used. */
ngx_int_t copy_addresses(ngx_pool_t *pool, ngx_url_t &to, const ngx_url_t &from)
{
    auto *addrs = static_cast<ngx_addr_t *>(
        ngx_pcalloc(pool, from.naddrs * sizeof(ngx_addr_t)));
    if (addrs == nullptr) {
        return NGX_ERROR;
    }

    for (ngx_uint_t i = 0; i < from.naddrs; i++) {
        socklen_t len = from.addrs[i].socklen;
        void *address = ngx_palloc(pool, len);

        if (address == nullptr) {
            return NGX_ERROR;
        }

        ngx_memcpy(address, from.addrs[i].sockaddr, len);

        addrs[i].sockaddr = static_cast<sockaddr *>(address);
        addrs[i].socklen = len;
    }

    to.addrs = addrs;
    to.naddrs = from.naddrs;

    return NGX_OK;
}

/* The server as it was, if it had addresses. */
const Server *find_known(const Settings &settings, const ngx_str_t &text)
{
    for (const Server &server : span<Server>(settings.servers)) {
        if (server.url.naddrs && view(server.text) == view(text)) {
            return &server;
        }
    }

    return nullptr;
}

} // namespace

ngx_int_t look_up_servers(ngx_conf_t *cf, Settings &settings)
{
    for (Server &server : span<Server>(settings.servers)) {
        ngx_url_t &url = server.url;

        if (url.naddrs || (settings.resolver && !is_localhost(url.host))
            || ngx_inet_resolve_host(cf->pool, &url) == NGX_OK) {
            continue;
        }

        if (url.err == nullptr) {
            return NGX_ERROR;
        }

        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "%s in server \"%V\" of limit_sliding_redis \"%V\", "
                      "without a \"resolver\" it is away until a reload "
                      "finds it, in %s:%ui",
                      url.err, &server.text, &settings.name, server.file,
                      server.line);
    }

    return NGX_OK;
}

ngx_int_t keep_addresses(ngx_pool_t *pool, Settings &settings,
                         const Settings &last, ngx_log_t *log)
{
    if (settings.resolver) {
        return NGX_OK;
    }

    for (Server &server : span<Server>(settings.servers)) {
        const Server *known = find_known(last, server.text);

        if (server.url.naddrs || known == nullptr) {
            continue;
        }

        if (copy_addresses(pool, server.url, known->url) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "server \"%V\" of limit_sliding_redis \"%V\" "
                      "keeps its last addresses",
                      &server.text, &settings.name);
    }

    return NGX_OK;
}

} // namespace limit_sliding
