
/*
 * Copyright (C) the limit_sliding authors
 */


#include "ngx_http_limit_sliding.h"


static char *ngx_http_limit_sliding_prefix(ngx_conf_t *cf,
    ngx_http_limit_sliding_param_t *param, ngx_uint_t maximum,
    ngx_uint_t *prefix);


char *
ngx_http_limit_sliding_client(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_limit_sliding_conf_t  *lscf = conf;

    enum { IPV4, IPV6 };

    ngx_http_limit_sliding_param_t  params[] = {
        { ngx_string("ipv4="), ngx_null_string, ngx_null_string },
        { ngx_string("ipv6="), ngx_null_string, ngx_null_string },
        { ngx_null_string, ngx_null_string, ngx_null_string }
    };

    if (lscf->client_ipv4 != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    if (ngx_http_limit_sliding_params(cf, 1, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    /* both are set here, or both inherited */

    lscf->client_ipv4 = NGX_HTTP_LIMIT_SLIDING_IPV4;
    lscf->client_ipv6 = NGX_HTTP_LIMIT_SLIDING_IPV6;

    if (ngx_http_limit_sliding_prefix(cf, &params[IPV4], 32,
                                      &lscf->client_ipv4)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_limit_sliding_prefix(cf, &params[IPV6], 128,
                                         &lscf->client_ipv6);
}


static char *
ngx_http_limit_sliding_prefix(ngx_conf_t *cf,
    ngx_http_limit_sliding_param_t *param, ngx_uint_t maximum,
    ngx_uint_t *prefix)
{
    ngx_int_t  n;

    if (param->word.len == 0) {
        return NGX_CONF_OK;
    }

    n = ngx_atoi(param->value.data, param->value.len);

    if (n == NGX_ERROR || n > (ngx_int_t) maximum) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid prefix \"%V\", it must be between 0 "
                           "and %ui", &param->word, maximum);
        return NGX_CONF_ERROR;
    }

    *prefix = n;

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_limit_sliding_client_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                         *p;
    size_t                          len;
    ngx_uint_t                      prefix;
    struct sockaddr                *sa;
    struct sockaddr_in             *sin;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6            *sin6;
#endif
    ngx_http_limit_sliding_conf_t  *lscf;

    lscf = ngx_http_get_module_loc_conf(r, ngx_http_limit_sliding_module);

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    sa = r->connection->sockaddr;

    switch (sa->sa_family) {

#if (NGX_HAVE_INET6)
    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) sa;
        p = sin6->sin6_addr.s6_addr;
        len = 16;
        prefix = lscf->client_ipv6;

        if (IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr)) {
            p += 12;
            len = 4;
            prefix = lscf->client_ipv4;
        }

        break;
#endif

#if (NGX_HAVE_UNIX_DOMAIN)
    case AF_UNIX:
        v->len = r->connection->addr_text.len;
        v->data = r->connection->addr_text.data;
        return NGX_OK;
#endif

    default: /* AF_INET */
        sin = (struct sockaddr_in *) sa;
        p = (u_char *) &sin->sin_addr;
        len = 4;
        prefix = lscf->client_ipv4;
        break;
    }

    v->len = len;
    v->data = p;

    if (prefix == len * 8) {
        return NGX_OK;
    }

    v->data = ngx_pcalloc(r->pool, len);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(v->data, p, prefix / 8);

    if (prefix % 8) {
        v->data[prefix / 8] = p[prefix / 8] & (0xff << (8 - prefix % 8));
    }

    return NGX_OK;
}
