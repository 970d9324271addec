
/*
 * Copyright (C) the limit_sliding authors
 */

/* In place of the rest of this directory where it is built without hiredis. */

#include "ngx/conf.hpp"
#include "redis/client.hpp"

namespace limit_sliding {

bool has_redis = false;

uint32_t latencies_us[1];

char *redis_block(ngx_conf_t *cf, Settings *settings)
{
    return conf_error(cf,
                      "limit_sliding_redis \"%V\" needs limit_sliding built "
                      "with hiredis",
                      &settings->name);
}

ngx_int_t redis_init(ngx_conf_t *cf, Redis *redis, ngx_resolver_t *resolver)
{
    return NGX_OK;
}

void redis_enter(Redis *redis)
{
    return;
}

void redis_exit(Redis *redis)
{
    return;
}

ngx_int_t ask_redis(Redis *redis, Claim *claims, ngx_uint_t nclaims,
                    Waiter *waiter)
{
    return NGX_DECLINED;
}

ngx_uint_t spend_leases(Claim *claims, ngx_uint_t nclaims)
{
    return 0;
}

void return_leases(Claim *claims, ngx_uint_t nclaims)
{
    return;
}

void describe_leases(Claim *claims, ngx_uint_t nclaims)
{
    return;
}

void leave_ask(Waiter *waiter)
{
    return;
}

ngx_int_t send_key_command(Claim *claim, KeyCommand what, ngx_str_t *value,
                           Waiter *waiter)
{
    return NGX_DECLINED;
}

void redis_traffic(Redis *redis, CallCounters *sum)
{
    ngx_memzero(sum, sizeof(CallCounters));
}

} // namespace limit_sliding
