
/*
 * Copyright (C) the limit_sliding authors
 */


/* Keys as the API shows and takes them: an address as its text. */


#include "ngx_http_limit_sliding_api.h"


static ngx_int_t ngx_http_limit_sliding_address_text(ngx_str_t *key,
    ngx_str_t *text);


/* As text, and as it may stand in an argument. */

void
ngx_http_limit_sliding_print_key(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_zone_t *zone, ngx_str_t *key)
{
    u_char     buf[NGX_INET6_ADDRSTRLEN];
    ngx_str_t  shown;

    shown.data = buf;

    if (!zone->addresses
        || ngx_http_limit_sliding_address_text(key, &shown) != NGX_OK)
    {
        shown = *key;
    }

    ngx_http_limit_sliding_print(text, "\"key\":");
    ngx_http_limit_sliding_print_json(text, &shown);

    ngx_http_limit_sliding_print(text, ",\"key_uri\":");
    ngx_http_limit_sliding_print_uri(text, &shown);
}


static ngx_int_t
ngx_http_limit_sliding_address_text(ngx_str_t *key, ngx_str_t *text)
{
    int  family;

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

    text->len = ngx_inet_ntop(family, key->data, text->data,
                              NGX_INET6_ADDRSTRLEN);

    return NGX_OK;
}


/*
 * Where keys are addresses a text that is one is made binary, in place: there
 * is room for 16 bytes.
 */

void
ngx_http_limit_sliding_read_key(ngx_http_limit_sliding_zone_t *zone,
    ngx_str_t *key)
{
    in_addr_t  addr;
#if (NGX_HAVE_INET6)
    u_char     addr6[16];
#endif

    if (!zone->addresses) {
        return;
    }

    addr = ngx_inet_addr(key->data, key->len);

    if (addr != INADDR_NONE) {
        ngx_memcpy(key->data, &addr, 4);
        key->len = 4;
        return;
    }

#if (NGX_HAVE_INET6)
    if (ngx_inet6_addr(key->data, key->len, addr6) == NGX_OK) {
        ngx_memcpy(key->data, addr6, 16);
        key->len = 16;
    }
#endif
}
