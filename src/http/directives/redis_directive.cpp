/* Copyright (C) the limit_sliding authors */

#include "http/directives/directives.hpp"

#include <algorithm>
#include <iterator>

#include "core/policy/shape.hpp"
#include "http/conf/configuration.hpp"
#include "http/values/suggestion.hpp"
#include "ngx/conf.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/block/redis_block.hpp"
#include "redis/shared/leases.hpp"

namespace limit_sliding {
namespace {

/* Bounds of "sync=". */
constexpr ngx_int_t kSyncMinMs = 10;
constexpr ngx_int_t kSyncMaxMs = 60 * 1000;

/* Returns the block of this name, which zones may mention first; nullptr: out of memory. */
Redis *get_redis(ngx_conf_t *cf, const ngx_str_t &name) {
    auto &redises = main_conf(cf).redises;
    for (auto *redis : redises) {
        if (view(redis->settings.name) == view(name)) { return redis; }
    }

    auto *redis = create<Redis>(cf->pool);
    if (redis == nullptr || redises.add(cf->pool, redis) == nullptr) { return nullptr; }

    redis->settings.name = name;
    redis->settings.where = file_line_of(cf);
    return redis;
}

bool init_remote_zone(ngx_conf_t *cf, ZoneConf &zone) {
    auto &remote = zone.remote;
    const auto &settings = remote.redis->settings;
    const auto on_error = remote.on_error.value_or(settings.on_error);

    /* In a cluster, the heartbeats of workers and the units of keys would be on different
     * servers. */
    if (zone.policy.is_in_flight() && settings.topology == Topology::kCluster) {
        return invalid_at(cf, zone.where,
                          "zone \"%V\" of \"inflight=\" cannot be in limit_sliding_redis \"%V\" "
                          "with \"topology cluster\" in %s:%ui",
                          &zone.name, &settings.name);
    }

    /* A zone with "sync=" is decided in this node's memory, with Redis or without it. */
    if (remote.sync_ms != 0 && on_error != OnError::kLocal) {
        return invalid_at(cf, zone.where,
                          "zone \"%V\" of \"sync=\" cannot have \"on_error=%s\", it needs "
                          "\"on_error=local\" in %s:%ui",
                          &zone.name, kOnErrorWords[index_of(on_error)].data());
    }

    remote.on_error = on_error;
    remote.name = zone.name;
    remote.policy = &zone.policy;
    remote.penalty = &zone.rejected.penalty;
    remote.prefix = join(cf->pool, view(settings.key_prefix), view(zone.name), ":{");
    remote.shape = join(cf->pool, "}:", Shape(zone.policy).text());
    return remote.prefix.data != nullptr && remote.shape.data != nullptr;
}

/* Logs that a block is missing, with a hint if its name is the address of a server. */
bool invalid_name(ngx_conf_t *cf, const Redis &redis) {
    const auto &name = redis.settings.name;
    const auto &where = redis.settings.where;
    auto address = view(name);
    cut_prefix(&address, "redis://");
    if (address.find_first_of(".:/") == std::string_view::npos) {
        return invalid_at(cf, where, "unknown limit_sliding_redis \"%V\" in %s:%ui", &name);
    }

    ngx_str_t server = to_str(address);
    return invalid_at(cf, where,
                      "unknown limit_sliding_redis \"%V\", a server belongs to a block with a "
                      "name, as \"limit_sliding_redis NAME { server %V; }\" in %s:%ui",
                      &name, &server);
}

} // namespace

extern "C" char *ngx_http_limit_sliding_redis(ngx_conf_t *cf, ngx_command_t *, void *) {
    auto &name = words_of(cf)[1];
    if (name.len == 0) { return conf_failed("has an empty name"); }

    auto *redis = get_redis(cf, name);
    if (redis == nullptr) { return conf_failed(); }

    if (redis->settings.defined) {
        return conf_error(cf, "duplicate limit_sliding_redis \"%V\"", &name);
    }

    return kHasRedis
               ? redis_block(cf, &redis->settings)
               : conf_error(cf, "limit_sliding_redis \"%V\" needs limit_sliding built with hiredis",
                            &name);
}

bool set_redis(const Param &param, ZoneConf &zone) {
    if (!kHasRedis) { return param.invalid("\"%V\" needs limit_sliding built with hiredis"); }

    zone.remote.redis = get_redis(param.cf, param.text);
    if (zone.remote.redis == nullptr) { return false; }

    /* Units in flight have a script of their own, but probes need the script of an algorithm. */
    const auto algorithm = zone.policy.is_in_flight() ? Algorithm::kFixed : zone.policy.algorithm;
    zone.remote.redis->algorithms |= 1u << index_of(algorithm);
    return true;
}

/* "lease=off|auto|n" */
bool set_lease(const Param &param, ZoneConf &zone) {
    auto value = param.value();
    if (value == "off") { return true; }

    if (zone.remote.sync_ms != 0) { return param.invalid("\"%V\" cannot be with \"sync=\""); }

    if (!zone.is_remote()) { return param.invalid("\"%V\" needs the \"redis=\" parameter"); }

    if (!Leases::can_serve(zone.policy)) {
        return param.invalid("\"%V\" belongs to \"algorithm=counter\", "
                             "\"algorithm=fixed\" and \"algorithm=token_bucket\" only");
    }

    if (zone.policy.counts_rejected) {
        return param.invalid("\"%V\" cannot be with \"count_rejected\"");
    }

    if (value == "auto") {
        zone.remote.lease = kLeaseAuto;
        return true;
    }

    ngx_int_t n = ngx_atoi(param.text.data, param.text.len);
    if (n < 1 || n > static_cast<ngx_int_t>(kNarrowMax)) {
        return param.invalid("invalid lease \"%V\", it must be \"off\", \"auto\" or a "
                             "number between 1 and %uL",
                             kNarrowMax);
    }

    zone.remote.lease = static_cast<uint32_t>(n);
    return true;
}

/* "on_error=local|allow|deny" */
bool set_on_error(const Param &param, ZoneConf &zone) {
    if (!zone.is_remote()) { return param.invalid("\"%V\" needs the \"redis=\" parameter"); }

    const auto *word = std::find(std::begin(kOnErrorWords), std::end(kOnErrorWords), param.value());
    if (word == std::end(kOnErrorWords)) {
        return param.invalid("invalid on_error \"%V\", it must be \"local\", \"allow\" or "
                             "\"deny\"");
    }

    zone.remote.on_error = static_cast<OnError>(word - std::begin(kOnErrorWords));
    return true;
}

/* "sync=time" */
bool set_sync(const Param &param, ZoneConf &zone) {
    if (!zone.is_remote()) { return param.invalid("\"%V\" needs the \"redis=\" parameter"); }

    if (zone.policy.algorithm == Algorithm::kLog) {
        return param.invalid("\"%V\" cannot be with \"algorithm=log\", whose requests are known "
                             "to Redis one by one");
    }

    ngx_str_t text = param.text;
    ngx_int_t ms = ngx_parse_time(&text, 0);
    if (ms == NGX_ERROR) {
        const auto meant = suggested_time(param.cf->pool, param.value());
        return param.invalid("invalid time \"%V\", it must be between 10ms and 1m%V", &meant);
    }

    const bool is_number = ngx_atoi(param.text.data, param.text.len) != NGX_ERROR;
    if (ms < kSyncMinMs || ms > kSyncMaxMs) {
        return param.invalid("\"%V\" must be between 10ms and 1m%s",
                             is_number ? ", not a number of seconds" : "");
    }

    if (is_number && ms > 1000) {
        ngx_conf_log_error(NGX_LOG_WARN, param.cf, 0,
                           "\"%V\" is %i seconds, did you mean \"%Vms\"?", &param.word, ms / 1000,
                           &param.word);
    }

    zone.remote.sync_ms = ms;
    return true;
}

bool init_redises(ngx_conf_t *cf, const Array<Redis *> &redises, const Zones &zones) {
    const auto &main = main_conf(cf);
    for (auto *zone : zones) {
        if (!zone->is_remote()) { continue; }

        zone->remote.redis->settles |= zone->remote.settles || main.owes;
        zone->remote.redis->records |= zone->policy.counts_rejected;
        zone->remote.redis->syncs |= zone->remote.sync_ms != 0;
    }

    for (auto *redis : redises) {
        if (!redis->settings.defined) { return invalid_name(cf, *redis); }

        if (kHasRedis && !redis_init(cf, redis, core_loc_conf(cf).resolver)) { return false; }
    }

    for (auto *zone : zones) {
        if (zone->is_remote() && !init_remote_zone(cf, *zone)) { return false; }
    }

    return true;
}

} // namespace limit_sliding
