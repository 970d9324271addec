/* Copyright (C) the limit_sliding authors */

#include "http/api/dashboard.hpp"

#include "http/json/response.hpp"
#include "http/response/headers.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Has the browser run and apply nothing but the page's own script and style,
 * and ask nobody but this server.  "make page" renews the hashes, and "make
 * check" tells when they are wrong. */
constexpr char kPolicy[] = "default-src 'none'; "
                           "style-src 'sha256-YDeShXqIZkxxXiN9S1t5LjA6mfoaB2w9g1m8EjBd810='; "
                           "script-src 'sha256-L0Vc2UbOelyNjWxgF+YXdqGOJGrI7gdK8/bQUDmvBIs='; "
                           "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                           "frame-ancestors 'none'; "
                           "require-trusted-types-for 'script'; trusted-types 'none'";

/* The bytes of dashboard.html with its style and scripts, made by the build. */
constexpr u_char kPage[] = {
#include "limit_sliding_dashboard.inc"
};

} // namespace

ngx_int_t send_dashboard(ngx_http_request_t *r) {
    Writer text(r->pool);
    text.append(view(kPage, sizeof(kPage)));

    if (!push_header(r, "Content-Security-Policy", to_str(kPolicy))
        || !push_header(r, "X-Content-Type-Options", to_str("nosniff"))) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return send_text(r, NGX_HTTP_OK, "text/html; charset=utf-8", text);
}

} // namespace limit_sliding
