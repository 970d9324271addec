
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The dashboard: dashboard.html with its styles and scripts, which the build
 * turns into bytes.
 */

/*
 * The browser is to run and apply nothing but the page's own script and style,
 * and to ask nobody but this server.  "make page" renews the hashes, and "make
 * check" tells when they are wrong.
 */

#define STYLE_HASH "'sha256-n5qPrMYkqWEP6Umq3qn2A4bv3RqvH4OwuYAXk0Zzb9M='"
#define SCRIPT_HASH "'sha256-TlSr+5heyCbkcQyUK/44l6ysu6xpA+WrLdt3uv2Ouak='"

#define POLICY                                                                 \
    "default-src 'none'; "                                                     \
    "style-src " STYLE_HASH "; "                                               \
    "script-src " SCRIPT_HASH "; "                                             \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "                \
    "frame-ancestors 'none'; "                                                 \
    "require-trusted-types-for 'script'; trusted-types 'none'"

#include "http/api/dashboard.hpp"

#include "http/api/response.hpp"
#include "http/api/writer.hpp"

namespace limit_sliding {

static u_char page[] = {
#include "limit_sliding_dashboard.inc"
};

ngx_int_t api_dashboard(ngx_http_request_t *r)
{
    ngx_buf_t *b;
    ngx_chain_t *cl;
    Writer text;

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL
        || api_header(r, "Content-Security-Policy", POLICY) != NGX_OK
        || api_header(r, "X-Content-Type-Options", "nosniff") != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->pos = page;
    b->last = b->pos + sizeof(page);
    b->memory = 1;

    cl->buf = b;
    cl->next = NULL;

    text_init(&text, r->pool);

    text.first = cl;
    text.buf = b;
    text.len = sizeof(page);

    return api_send(r, NGX_HTTP_OK, "text/html; charset=utf-8", &text);
}

} // namespace limit_sliding
