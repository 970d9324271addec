
/*
 * Copyright (C) the limit_sliding authors
 */

/* Keys as the API shows and takes them: an address as its text. */

#include <arpa/inet.h>

#include "http/api/key_text.hpp"

#include "http/api/writer.hpp"
#include "http/client_address.hpp"
#include "http/configuration.hpp"
#include "http/module.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static ngx_int_t address_text(ngx_str_t *key, ngx_str_t *text);
static ngx_int_t parse_address(ngx_str_t *text, u_char *address, size_t *len);
static ngx_uint_t is_unix(ngx_str_t *key);
static ngx_uint_t is_printable(ngx_str_t *key);

/* As text, and as it may stand in an argument. */

void print_key(Writer *text, ZoneConf *zone, ngx_str_t *key)
{
    u_char buf[NGX_INET6_ADDRSTRLEN];
    ngx_str_t shown;

    shown.data = buf;

    if (zone->keys == KeyKind::kTexts || address_text(key, &shown) != NGX_OK) {
        shown = *key;
    }

    print(text, "\"key\":");
    print_json(text, &shown);

    print(text, ",\"key_uri\":");
    print_uri(text, &shown);
}

static ngx_int_t address_text(ngx_str_t *key, ngx_str_t *text)
{
    int family;

    if (is_unix(key)) {
        return NGX_DECLINED;
    }

    switch (key->len) {

    case 4:
        family = AF_INET;
        break;

#if (NGX_HAVE_INET6)
    case 16:
        family = AF_INET6;
        break;
#endif

    default:
        return NGX_DECLINED;
    }

    text->len
        = ngx_inet_ntop(family, key->data, text->data, NGX_INET6_ADDRSTRLEN);

    return NGX_OK;
}

/*
 * Where keys are addresses, makes of a text the key that requests from that
 * address have, in place: there is room for 16 bytes.  The bytes of an address
 * are taken as well.  NGX_DECLINED: it is no address.
 */

ngx_int_t read_key(ngx_http_request_t *r, ZoneConf *zone, ngx_str_t *key)
{
    ngx_str_t address;
    ngx_uint_t prefix;
    struct in6_addr buf;
    LocConf *lscf;

    if (zone->keys == KeyKind::kTexts || is_unix(key)) {
        return NGX_OK;
    }

    address.data = buf.s6_addr;

    if (parse_address(key, address.data, &address.len) != NGX_OK) {
        return NGX_DECLINED;
    }

    prefix = address.len * 8;

    if (zone->keys == KeyKind::kClients) {

        if (zone->clients.known) {
            prefix
                = client_part(&address, zone->clients.ipv4, zone->clients.ipv6);

        } else {
            lscf = ngx_http_get_module_loc_conf(r,
                                                ngx_http_limit_sliding_module);

            prefix
                = client_part(&address, lscf->client_ipv4, lscf->client_ipv6);
        }
    }

    cut_to_prefix(key->data, &address, prefix);
    key->len = address.len;

    return NGX_OK;
}

/* inet_pton() is strict, where NGINX's own functions take "1..2" for one. */

static ngx_int_t parse_address(ngx_str_t *text, u_char *address, size_t *len)
{
    char buf[NGX_INET6_ADDRSTRLEN + 1];

    if (!is_printable(text)) {

        if (text->len != 4 && text->len != 16) {
            return NGX_DECLINED;
        }

        ngx_memcpy(address, text->data, text->len);
        *len = text->len;

        return NGX_OK;
    }

    if (text->len >= sizeof(buf)) {
        return NGX_DECLINED;
    }

    ngx_memcpy(buf, text->data, text->len);
    buf[text->len] = '\0';

    if (inet_pton(AF_INET, buf, address) == 1) {
        *len = 4;
        return NGX_OK;
    }

#if (NGX_HAVE_INET6)
    if (inet_pton(AF_INET6, buf, address) == 1) {
        *len = 16;
        return NGX_OK;
    }
#endif

    return NGX_DECLINED;
}

/* Clients behind a Unix socket have its name instead of an address. */

static ngx_uint_t is_unix(ngx_str_t *key)
{
    return key->len >= sizeof("unix:") - 1
           && ngx_strncmp(key->data, "unix:", sizeof("unix:") - 1) == 0;
}

/* Text, that is, and not the bytes of an address. */

static ngx_uint_t is_printable(ngx_str_t *key)
{
    size_t i;

    for (i = 0; i < key->len; i++) {
        if (key->data[i] < ' ' || key->data[i] > '~') {
            return 0;
        }
    }

    return 1;
}

} // namespace limit_sliding
