
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/client_address.hpp"

#include "http/configuration.hpp"
#include "http/limit_set.hpp"
#include "http/module.hpp"
#include "http/parameter.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static char *parse_prefix(ngx_conf_t *cf, Param *param, ngx_uint_t maximum,
                          ngx_uint_t *prefix);
static ngx_uint_t is_covered(ngx_http_core_loc_conf_t *clcf);

extern "C" char *ngx_http_limit_sliding_client(ngx_conf_t *cf,
                                               ngx_command_t *cmd, void *conf)
{
    LocConf *lscf = conf;

    enum { IPV4, IPV6 };

    Param params[] = {{ngx_string("ipv4="), ngx_null_string, ngx_null_string},
                      {ngx_string("ipv6="), ngx_null_string, ngx_null_string},
                      {ngx_null_string, ngx_null_string, ngx_null_string}};

    if (lscf->client_ipv4 != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    if (parse_params(cf, 1, params) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    /* both are set here, or both inherited */

    lscf->client_ipv4 = kIpv4Prefix;
    lscf->client_ipv6 = kIpv6Prefix;

    if (parse_prefix(cf, &params[IPV4], 32, &lscf->client_ipv4)
        != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    return parse_prefix(cf, &params[IPV6], 128, &lscf->client_ipv6);
}

static char *parse_prefix(ngx_conf_t *cf, Param *param, ngx_uint_t maximum,
                          ngx_uint_t *prefix)
{
    ngx_int_t n;

    if (param->word.len == 0) {
        return NGX_CONF_OK;
    }

    n = ngx_atoi(param->value.data, param->value.len);

    if (n == NGX_ERROR || n > (ngx_int_t)maximum) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid prefix \"%V\", it must be between 0 "
                           "and %ui",
                           &param->word, maximum);
        return NGX_CONF_ERROR;
    }

    *prefix = n;

    return NGX_CONF_OK;
}

ngx_int_t client_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                          uintptr_t data)
{
    ngx_str_t address;
    ngx_uint_t prefix;
    struct sockaddr *sa;
    LocConf *lscf;

    lscf = ngx_http_get_module_loc_conf(r, ngx_http_limit_sliding_module);

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    sa = r->connection->sockaddr;

    switch (sa->sa_family) {

#if (NGX_HAVE_INET6)
    case AF_INET6:
        address.data = ((struct sockaddr_in6 *)sa)->sin6_addr.s6_addr;
        address.len = 16;
        break;
#endif

#if (NGX_HAVE_UNIX_DOMAIN)
    case AF_UNIX:
        v->len = r->connection->addr_text.len;
        v->data = r->connection->addr_text.data;
        return NGX_OK;
#endif

    default: /* AF_INET */
        address.data = (u_char *)&((struct sockaddr_in *)sa)->sin_addr;
        address.len = 4;
        break;
    }

    prefix = client_part(&address, lscf->client_ipv4, lscf->client_ipv6);

    v->len = address.len;
    v->data = address.data;

    if (prefix == address.len * 8) {
        return NGX_OK;
    }

    v->data = ngx_pnalloc(r->pool, address.len);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    cut_to_prefix(v->data, &address, prefix);

    return NGX_OK;
}

/*
 * Leaves of an address, of 4 or 16 bytes, what tells clients apart: of one of
 * IPv4 in IPv6's form the last 4 bytes.  Returns that one of the prefixes
 * which it is to be cut to.
 */

ngx_uint_t client_part(ngx_str_t *address, ngx_uint_t ipv4, ngx_uint_t ipv6)
{
#if (NGX_HAVE_INET6)
    if (address->len == 16) {

        if (!IN6_IS_ADDR_V4MAPPED((struct in6_addr *)address->data)) {
            return ipv6;
        }

        address->data += 12;
        address->len = 4;
    }
#endif

    return ipv4;
}

/* Copies an address with all bits beyond the prefix 0. */

void cut_to_prefix(u_char *dst, ngx_str_t *address, ngx_uint_t prefix)
{
    size_t n;

    n = prefix / 8;

    ngx_memcpy(dst, address->data, n);
    ngx_memzero(dst + n, address->len - n);

    if (prefix % 8) {
        dst[n] = address->data[n] & (0xff << (8 - prefix % 8));
    }
}

/*
 * Tells the zones of a place's limits to which prefixes their clients are cut
 * there, for the API, which is asked for clients from elsewhere.  Of several
 * places the longest prefixes count: they leave the shorter ones' networks
 * as they are, so any key that a zone holds can be given.
 */

void learn_prefixes(ngx_conf_t *cf, LocConf *conf)
{
    ngx_uint_t i, j;
    ngx_http_core_loc_conf_t *clcf;
    ZoneConf *zone;
    Group *group;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (is_covered(clcf)) {
        return;
    }

    for (i = 0; i < kStages; i++) {
        for (group = conf->groups[i]; group; group = group->next) {
            for (j = 0; j < group->nlimits; j++) {
                zone = group->limits[j].zone;

                zone->client_ipv4
                    = ngx_max(zone->client_ipv4, conf->client_ipv4);
                zone->client_ipv6
                    = ngx_max(zone->client_ipv6, conf->client_ipv6);
                zone->clients = 1;
            }
        }
    }
}

/* Whether it is a server with a "location /", in which all requests end up. */

static ngx_uint_t is_covered(ngx_http_core_loc_conf_t *clcf)
{
    ngx_queue_t *q;
    ngx_http_core_loc_conf_t *location;

    if (clcf->name.len || clcf->locations == NULL) {
        return 0;
    }

    for (q = ngx_queue_head(clcf->locations);
         q != ngx_queue_sentinel(clcf->locations); q = ngx_queue_next(q)) {
        location = ((ngx_http_location_queue_t *)q)->inclusive;

        if (location && location->name.len == 1
            && location->name.data[0] == '/') {
            return 1;
        }
    }

    return 0;
}

} // namespace limit_sliding
