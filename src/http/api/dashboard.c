
/*
 * Copyright (C) the limit_sliding authors
 */


/*
 * The dashboard: dashboard.html with its styles and scripts, which the build
 * turns into bytes.
 */


#include "http/api/api.h"


/*
 * The browser is to run and apply nothing but the page's own script and style,
 * and to ask nobody but this server.  "make page" renews the hashes, and "make
 * check" tells when they are wrong.
 */

#define NGX_HTTP_LIMIT_SLIDING_STYLE                                          \
    "'sha256-n5qPrMYkqWEP6Umq3qn2A4bv3RqvH4OwuYAXk0Zzb9M='"
#define NGX_HTTP_LIMIT_SLIDING_SCRIPT                                         \
    "'sha256-TlSr+5heyCbkcQyUK/44l6ysu6xpA+WrLdt3uv2Ouak='"

#define NGX_HTTP_LIMIT_SLIDING_CSP                                            \
    "default-src 'none'; "                                                    \
    "style-src " NGX_HTTP_LIMIT_SLIDING_STYLE "; "                            \
    "script-src " NGX_HTTP_LIMIT_SLIDING_SCRIPT "; "                          \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "               \
    "frame-ancestors 'none'; "                                                \
    "require-trusted-types-for 'script'; trusted-types 'none'"


static u_char  ngx_http_limit_sliding_page[] = {
#include "limit_sliding_dashboard.inc"
};


ngx_int_t
ngx_http_limit_sliding_api_dashboard(ngx_http_request_t *r)
{
    ngx_buf_t                      *b;
    ngx_chain_t                    *cl;
    ngx_http_limit_sliding_text_t   text;

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL
        || cl == NULL
        || ngx_http_limit_sliding_api_header(r, "Content-Security-Policy",
                                             NGX_HTTP_LIMIT_SLIDING_CSP)
           != NGX_OK
        || ngx_http_limit_sliding_api_header(r, "X-Content-Type-Options",
                                             "nosniff")
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->pos = ngx_http_limit_sliding_page;
    b->last = b->pos + sizeof(ngx_http_limit_sliding_page);
    b->memory = 1;

    cl->buf = b;
    cl->next = NULL;

    ngx_http_limit_sliding_text_init(&text, r->pool);

    text.first = cl;
    text.buf = b;
    text.len = sizeof(ngx_http_limit_sliding_page);

    return ngx_http_limit_sliding_api_send(r, NGX_HTTP_OK,
                                           "text/html; charset=utf-8", &text);
}
