/* Copyright (C) the limit_sliding authors */

/* Stands in for the rest of src/redis, except for redis/shared and most of redis/protocol, in
 * builds without hiredis. */

#include "ngx/conf.hpp"
#include "redis/background/ban_spread.hpp"
#include "redis/background/override_scan.hpp"
#include "redis/background/sync.hpp"
#include "redis/calls/client.hpp"
#include "redis/calls/server_memory.hpp"

namespace limit_sliding {

bool has_redis = false;

char *redis_block(ngx_conf_t *cf, Settings *settings) {
    return conf_error(cf, "limit_sliding_redis \"%V\" needs limit_sliding built with hiredis",
                      &settings->name);
}

bool redis_init(ngx_conf_t *cf, Redis *redis, ngx_resolver_t *resolver) { return true; }

void redis_enter(Redis *redis) {}

void redis_exit(Redis *redis) {}

bool can_ask(Redis &redis) { return false; }

void enter_bans(RemoteZone &) {}

void tell_ban(const RemoteZone &, uint64_t) {}

void tell_lifted_ban(const RemoteZone &, uint64_t) {}

bool ask_redis(Span<Claim> claims, Waiter *waiter) { return false; }

void settle_redis(const Claim &claim, int64_t difference) {}

void give_back_granted(Span<Claim> claims) {}
void sync_redis(const Claim &claim, uint64_t units) {}

void unsync_redis(const Claim &claim, uint64_t units) {}

bool spend_leases(Span<Claim> claims) { return false; }

void return_leases(Span<Claim> claims) {}

void describe_leases(Span<Claim> claims) {}

void leave_ask(Waiter *waiter) {}

bool send_key_command(Claim *claim, KeyCommand command, ngx_str_t *value, ngx_msec_t ttl_ms,
                      Waiter *waiter) {
    return false;
}

bool charge_redis(Claim *, int64_t, Waiter *) { return false; }

ScanPage *scan_limits(RemoteZone &, const ScanCursor &, size_t, ngx_event_t *) { return nullptr; }

void leave_scan(ScanPage *) {}

std::optional<ServerMemory> look_at_memory(Redis &) { return std::nullopt; }

} // namespace limit_sliding
