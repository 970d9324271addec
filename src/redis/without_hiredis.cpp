/* Copyright (C) the limit_sliding authors */

/* In place of the rest of this directory where it is built without hiredis. */

#include "ngx/conf.hpp"
#include "redis/client.hpp"

namespace limit_sliding {

bool has_redis = false;

char *redis_block(ngx_conf_t *cf, Settings *settings) {
    return conf_error(cf,
                      "limit_sliding_redis \"%V\" needs limit_sliding built "
                      "with hiredis",
                      &settings->name);
}

bool redis_init(ngx_conf_t *cf, Redis *redis, ngx_resolver_t *resolver) { return true; }

void redis_enter(Redis *redis) {}

void redis_exit(Redis *redis) {}

bool ask_redis(Redis *redis, Claim *claims, ngx_uint_t nclaims, Waiter *waiter) { return false; }

bool spend_leases(Claim *claims, size_t nclaims) { return false; }

void return_leases(Claim *claims, size_t nclaims) {}

void describe_leases(Claim *claims, size_t nclaims) {}

void leave_ask(Waiter *waiter) {}

bool send_key_command(Claim *claim, KeyCommand command, ngx_str_t *value, Waiter *waiter) {
    return false;
}

} // namespace limit_sliding
