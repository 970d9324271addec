
/*
 * Copyright (C) the limit_sliding authors
 */


/* In place of the rest of this directory where it is built without hiredis. */


#include "redis/client.h"


ngx_uint_t  ngx_http_limit_sliding_has_redis = 0;

uint32_t  ngx_http_limit_sliding_latencies_us[1];

ngx_str_t  ngx_http_limit_sliding_topology_words[1];

ngx_str_t  ngx_http_limit_sliding_on_error_words[1];


char *
ngx_http_limit_sliding_redis_block(ngx_conf_t *cf,
    ngx_http_limit_sliding_redis_t *redis)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "limit_sliding_redis \"%V\" needs limit_sliding built "
                       "with hiredis", &redis->name);
    return NGX_CONF_ERROR;
}


ngx_int_t
ngx_http_limit_sliding_redis_init(ngx_conf_t *cf,
    ngx_http_limit_sliding_redis_t *redis, ngx_resolver_t *resolver)
{
    return NGX_OK;
}


void
ngx_http_limit_sliding_redis_enter(ngx_http_limit_sliding_redis_t *redis)
{
    return;
}


void
ngx_http_limit_sliding_redis_exit(ngx_http_limit_sliding_redis_t *redis)
{
    return;
}


ngx_int_t
ngx_http_limit_sliding_ask(ngx_http_limit_sliding_redis_t *redis,
    limit_sliding_claim_t *claims, ngx_uint_t nclaims,
    ngx_http_limit_sliding_waiter_t *waiter)
{
    return NGX_DECLINED;
}


ngx_uint_t
ngx_http_limit_sliding_lease(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims)
{
    return 0;
}


void
ngx_http_limit_sliding_lease_return(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims)
{
    return;
}


void
ngx_http_limit_sliding_lease_tell(limit_sliding_claim_t *claims,
    ngx_uint_t nclaims)
{
    return;
}


void
ngx_http_limit_sliding_leave(ngx_http_limit_sliding_waiter_t *waiter)
{
    return;
}


ngx_int_t
ngx_http_limit_sliding_order(limit_sliding_claim_t *claim,
    ngx_http_limit_sliding_order_e what, ngx_str_t *value,
    ngx_http_limit_sliding_waiter_t *waiter)
{
    return NGX_DECLINED;
}


void
ngx_http_limit_sliding_redis_traffic(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_traffic_t *sum)
{
    ngx_memzero(sum, sizeof(ngx_http_limit_sliding_traffic_t));
}
