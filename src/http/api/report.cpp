/* Copyright (C) the limit_sliding authors */

#include "http/api/report.hpp"

#include <algorithm>

#include "core/counters.hpp"
#include "core/offenders.hpp"
#include "core/zone.hpp"
#include "http/api/key.hpp"
#include "http/api/metrics.hpp"
#include "http/api/response.hpp"
#include "http/configuration.hpp"
#include "http/variables.hpp"
#include "ngx/array.hpp"
#include "ngx/strings.hpp"
#include "redis/logic/leases.hpp"
#include "redis/server_memory.hpp"

namespace limit_sliding {
namespace {

constexpr char kVersion[] = "1.0.0";

/* The bytes of all zones' slots that are looked at to tell how many keys live:
 * less than a millisecond's work. */
constexpr uint64_t kWalkBytes = 1024 * 1024;

/* The places of bans that are looked at to tell how many keys are banned. */
constexpr uint64_t kWalkPlaces = kWalkBytes / 16;

/* Words for the counts of requests, by Count. */
constexpr const char *kCountNames[]
    = {"passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run", "errors"};

/* The first source of decisions that is not local. */
constexpr size_t kFirstSource = index_of(Source::kRedis);

/* The numbers of a zone at one moment. */
struct ZoneReport {
    const ZoneConf *conf;
    Counters counters;
    DecisionTimes times;
    uint64_t slots;
    uint64_t keys;
    uint64_t banned;

    bool bans() const { return conf->rejected.are_banned(); }
    Label label() const { return {"zone", view(conf->name)}; }
    uint64_t own_limits() const { return conf->memory.aside.own_limits->count(); }
};

/* The numbers of a Redis that a zone uses. */
struct RedisReport {
    const Redis *redis;
    CallCounters calls;
    bool is_open; /* its breaker */
    bool is_memory_known;
    ServerMemory memory;

    Label label() const { return {"redis", view(redis->settings.name)}; }
};

struct Report {
    Array<ZoneReport> zones;
    Array<RedisReport> redises;

    bool collect(ngx_http_request_t *r);
};

/* Returns the length of the present window. */
uint64_t window_ms(const ZoneConf &zone) {
    return zone.policy.length_ms(ngx_current_msec + zone.memory.table->offset_ms);
}

/* Writes a histogram whose values have so many decimals as seconds. */
template <class Times>
void write_times(Metric &out, const Times &times, int decimals) {
    times.for_each([&](uint64_t n, uint64_t bound) {
        out.sample({"le", Number(bound, decimals).text()}, n, "_bucket");
    });
    out.sample({"le", "+Inf"}, times.n(), "_bucket");
    out.sample({}, {times.sum, decimals}, "_sum");
    out.sample({}, times.n(), "_count");
}

constexpr MetricRow<ZoneReport> kZoneMetrics[] = {
    {{"limit_sliding_requests_total", "counter", "Requests that the zone decided."},
     [](auto &out, auto &zone) {
         for (size_t i = 0; i < kCountErrors; i++) {
             out.sample({"status", kCountNames[i]}, zone.counters.requests[i]);
         }
     }},
    {{"limit_sliding_errors_total", "counter",
      "Keys, rates and costs of requests that could not be used."},
     [](auto &out, auto &zone) { out.sample(zone.counters.requests[kCountErrors]); }},
    {{"limit_sliding_evicted_total", "counter", "Unexpired states given up for new keys."},
     [](auto &out, auto &zone) { out.sample(zone.counters.slots.evicted); }},
    {{"limit_sliding_refused_total", "counter", "New keys refused because the zone was full."},
     [](auto &out, auto &zone) { out.sample(zone.counters.slots.refused); }},
    {{"limit_sliding_keys", "gauge", "Unexpired states, estimated in a large zone."},
     [](auto &out, auto &zone) { out.sample(zone.keys); }},
    {{"limit_sliding_slots", "gauge", "States that the zone has room for."},
     [](auto &out, auto &zone) { out.sample(zone.slots); }},
    {{"limit_sliding_slots_used", "gauge", "Slots that have ever been used."},
     [](auto &out, auto &zone) { out.sample(zone.counters.slots.used); }},
    {{"limit_sliding_own_limits", "gauge", "Keys with a limit of their own."},
     [](auto &out, auto &zone) { out.sample(zone.own_limits()); }},
    {{"limit_sliding_bans_total", "counter", "Bans of keys that have begun."},
     [](auto &out, auto &zone) {
         if (zone.bans()) { out.sample(zone.counters.bans); }
     }},
    {{"limit_sliding_banned_requests_total", "counter", "Requests rejected by a ban."},
     [](auto &out, auto &zone) {
         if (zone.bans()) { out.sample(zone.counters.banned_requests); }
     }},
    {{"limit_sliding_banned", "gauge", "Keys that are banned, estimated in a large zone."},
     [](auto &out, auto &zone) {
         if (zone.bans()) { out.sample(zone.banned); }
     }},
    {{"limit_sliding_zone_bytes", "gauge", "Size of the zone."},
     [](auto &out, auto &zone) { out.sample(zone.conf->size); }},
    {{"limit_sliding_limit", "gauge", "Requests a window, where that is the same for all keys."},
     [](auto &out, auto &zone) {
         if (zone.conf->limit != 0) { out.sample(zone.conf->limit); }
     }},
    {{"limit_sliding_window_seconds", "gauge", "Length of the window."},
     [](auto &out, auto &zone) {
         out.sample({window_ms(*zone.conf), 3});
     }},
    {{"limit_sliding_decision_duration_seconds", "histogram",
      "Times of a part of the decisions, of those that waited for nothing."},
     [](auto &out, auto &zone) { write_times(out, zone.times, 9); }},
};

/* Metrics of zones in a build with hiredis. */
constexpr MetricRow<ZoneReport> kSourceMetrics[] = {
    {{"limit_sliding_decisions_total", "counter",
      "Where requests of a zone in Redis were decided."},
     [](auto &out, auto &zone) {
         for (size_t i = kFirstSource; zone.conf->redis && i < kSources; i++) {
             out.sample({"source", kSourceNames[i]}, zone.counters.sources[i]);
         }
     }},
};

constexpr MetricRow<RedisReport> kRedisMetrics[] = {
    {{"limit_sliding_redis_failed_calls_total", "counter",
      "Calls without an answer, or answered by an error."},
     [](auto &out, auto &redis) { out.sample(redis.calls.failed); }},
    {{"limit_sliding_redis_breaker_opened_total", "counter",
      "How often the circuit breaker has opened."},
     [](auto &out, auto &redis) { out.sample(redis.calls.opened); }},
    {{"limit_sliding_redis_leased_total", "counter",
      "Requests whose units calls have taken in advance."},
     [](auto &out, auto &redis) { out.sample(redis.calls.leased); }},
    {{"limit_sliding_unsettled_total", "counter",
      "Units whose settlement Redis did not take, which this node's memory has."},
     [](auto &out, auto &redis) { out.sample(redis.calls.unsettled); }},
    {{"limit_sliding_redis_breaker_open", "gauge",
      "1 while the circuit breaker is open, so that Redis is not asked."},
     [](auto &out, auto &redis) { out.sample(redis.is_open); }},
    {{"limit_sliding_redis_call_duration_seconds", "histogram",
      "Round trips of calls that Redis answered."},
     [](auto &out, auto &redis) { write_times(out, redis.calls.latencies, 6); }},
    {{"limit_sliding_redis_memory_bytes", "gauge", "Memory that the masters of Redis use."},
     [](auto &out, auto &redis) {
         if (redis.is_memory_known) { out.sample(redis.memory.bytes); }
     }},
    {{"limit_sliding_redis_memory_max_bytes", "gauge",
      "Memory that they may use, where each has a maximum."},
     [](auto &out, auto &redis) {
         if (redis.memory.max_bytes != 0) { out.sample(redis.memory.max_bytes); }
     }},
    {{"limit_sliding_redis_evicted_keys_total", "counter",
      "Keys that they have given up for others."},
     [](auto &out, auto &redis) {
         if (redis.is_memory_known) { out.sample(redis.memory.evicted); }
     }},
};

/* Returns false if memory is exhausted. */
bool Report::collect(ngx_http_request_t *r) {
    const MainConf &main = main_conf(r);
    for (const ZoneConf *conf : main.zones) {
        ZoneReport *zone = zones.add(r->pool);
        if (zone == nullptr) { return false; }

        zone->counters = Counters::sum(conf->memory.aside.counters, conf->memory.aside.ncounters);

        zone->times.add(*conf->memory.aside.times);
        zone->conf = conf;
        zone->slots = conf->memory.table->stats().slots;
        zone->keys = conf->memory.table->keys(
            conf->policy, ngx_current_msec,
            std::clamp(conf->limit, uint64_t{1}, conf->policy.limit_max()),
            zone->counters.slots.used, kWalkBytes / main.zones.size());
        zone->banned = zone->bans() ? conf->memory.aside.bans->banned(
                           ngx_current_msec, kWalkPlaces / main.zones.size() + 1)
                                    : 0;
    }

    for (Redis *redis : main.redises) {
        if (redis->shared == nullptr) { continue; /* no zone uses it */ }

        RedisReport *report = redises.add(r->pool);
        if (report == nullptr) { return false; }

        report->redis = redis;
        report->is_open = redis->shared->breaker.is_open();
        report->calls = sum_of(redis->shared->calls);

        const auto memory = look_at_memory(*redis);
        report->is_memory_known = memory.has_value();
        report->memory = memory.value_or(ServerMemory{});
    }

    return true;
}

void write_settings(Json &json, const ZoneConf &zone) {
    const Policy &policy = zone.policy;

    json.field("key", zone.key.complex.value);
    json.field("rate", zone.rate_text);
    json.field("limit", zone.limit != 0 ? &zone.limit : nullptr);
    json.field("window_ms", window_ms(zone));
    json.field("algorithm", algorithm_names[index_of(policy.algorithm)]);
    json.field("full", policy.full == WhenFull::kDeny ? "deny" : "evict");

    if (policy.algorithm == Algorithm::kCounter) {
        if (policy.precision == 0) {
            json.field("precision", "auto");
        } else {
            json.field("precision", policy.precision);
        }

        json.field("strict", policy.strict);
    }

    if (policy.algorithm == Algorithm::kFixed) {
        const auto window = name_of(policy.calendar);
        json.field("window", window.empty() ? nullptr : &window);
        json.field("calendar", policy.offsets != nullptr ? "local" : "utc");
    }

    if (policy.algorithm == Algorithm::kLeakyBucket || policy.burst != 0) {
        json.field("burst", policy.burst);
    }

    if (policy.undelayed == kNeverDelayed) {
        json.field("nodelay", true);
    } else if (policy.undelayed != 0) {
        json.field("delay", policy.undelayed);
    }

    if (policy.counts_rejected) { json.field("count_rejected", true); }

    json.field("redis", zone.redis != nullptr ? &zone.redis->settings.name : nullptr);

    if (!zone.rejected.are_banned()) {
        json.field("penalty", nullptr);
        return;
    }

    auto penalty = json.object("penalty");
    json.field("time_ms", zone.rejected.penalty.penalty_ms);
    json.field("after", zone.rejected.penalty.after);
    json.field("max_ms", zone.rejected.penalty.max_ms);
}

void write_sync(Json &json, ngx_msec_t sync_ms) {
    if (sync_ms == 0) {
        json.field("sync", nullptr);
    } else {
        json.field("sync", sync_ms);
    }
}

void write_leases(Json &json, uint32_t lease) {
    if (lease == 0) {
        json.field("leases", nullptr);
        return;
    }

    auto leases = json.object("leases");

    if (lease == kLeaseAuto) {
        json.field("size", "auto");
    } else {
        json.field("size", lease);
    }
}

/* Keys are what clients sent: any bytes. */
void write_offenders(Json &json, const ZoneConf &zone) {
    if (!zone.rejected.top) {
        json.field("top", nullptr);
        return;
    }

    Offender offenders[kOffendersMax];
    const size_t n = zone.memory.aside.offenders->read(ngx_current_msec, offenders);
    auto top = json.array("top");

    for (const Offender &offender : Span(offenders, n)) {
        const size_t len = std::min<size_t>(offender.bytes, kOffenderKeyBytes);
        auto object = json.object();

        write_key(json, zone, view(offender.key, len));
        json.field("truncated", len < offender.bytes);
        json.field("rejected", offender.rejected);
    }
}

/* Writes a histogram, with the names of the bounds, of the numbers up to them, and of the
 * sum. */
template <class Times>
void write_times(Json &json, const char *name, const Times &times, const char *bound_name,
                 const char *n_name, const char *sum_name) {
    auto object = json.object(name);

    {
        auto buckets = json.array("buckets");
        times.for_each([&](uint64_t n, uint64_t bound) {
            auto bucket = json.object();
            json.field(bound_name, bound);
            json.field(n_name, n);
        });
    }

    json.field(sum_name, times.sum);
}

void write_zone(Json &json, const ZoneReport &zone) {
    const Counters &counters = zone.counters;
    auto object = json.object(view(zone.conf->name));

    write_settings(json, *zone.conf);
    json.field("bytes", zone.conf->size);
    json.field("slots", zone.slots);
    json.field("slots_used", counters.slots.used);
    json.field("keys", zone.keys);
    json.field("own_limits", zone.own_limits());

    for (size_t i = 0; i < kCounts; i++) {
        json.field(kCountNames[i], counters.requests[i]);
    }

    json.field("evicted", counters.slots.evicted);
    json.field("refused", counters.slots.refused);
    json.field("bans", counters.bans);
    json.field("banned_requests", counters.banned_requests);
    json.field("banned", zone.banned);
    write_times(json, "decision_times", zone.times, "le_ns", "decisions", "sum_ns");
    json.field("measured", zone.times.n());

    if (zone.conf->redis != nullptr) {
        {
            auto sources = json.object("sources");
            for (size_t i = kFirstSource; i < kSources; i++) {
                json.field(kSourceNames[i], counters.sources[i]);
            }
        }

        write_leases(json, zone.conf->remote.lease);
        json.field("on_error", kOnErrorWords[index_of(*zone.conf->remote.on_error)]);
        write_sync(json, zone.conf->remote.sync_ms);
    }

    write_offenders(json, *zone.conf);
}

void write_memory(Json &json, const RedisReport &redis) {
    if (!redis.is_memory_known) {
        json.field("memory", nullptr);
        return;
    }

    const ServerMemory &memory = redis.memory;
    auto object = json.object("memory");
    json.field("bytes", memory.bytes);
    json.field("max_bytes", memory.max_bytes != 0 ? &memory.max_bytes : nullptr);
    json.field("evicted", memory.evicted);
}

void write_redis(Json &json, const RedisReport &redis) {
    const Settings &settings = redis.redis->settings;
    auto object = json.object(view(settings.name));

    {
        auto servers = json.array("servers");
        for (const Server &server : settings.servers) {
            json.field({}, server.text);
        }
    }

    json.field("topology", kTopologyWords[index_of(settings.topology)]);
    json.field("on_error", kOnErrorWords[index_of(settings.on_error)]);
    json.field("timeout_ms", settings.timeout);
    json.field("breaker", redis.is_open ? "open" : "closed");
    json.field("breaker_opened", redis.calls.opened);
    json.field("failed_calls", redis.calls.failed);
    json.field("leased", redis.calls.leased);
    json.field("unsettled", redis.calls.unsettled);
    write_times(json, "latency", redis.calls.latencies, "le_us", "calls", "sum_us");
    json.field("calls", redis.calls.latencies.n());
    write_memory(json, redis);
}

} // namespace

ngx_int_t send_report(ngx_http_request_t *r) {
    Report report;
    if (!report.collect(r)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    return send_json(r, NGX_HTTP_OK, [&](Json &json) {
        const ngx_time_t *now = ngx_timeofday();

        json.field("version", kVersion);
        json.field("nginx", NGINX_VERSION);
        json.field("time_ms", now->sec * 1000 + now->msec);
        json.field("write", loc_conf(r).api_write == 1);

        {
            auto zones = json.object("zones");
            for (const ZoneReport &zone : report.zones) {
                json.line();
                write_zone(json, zone);
            }
        }

        json.line();
        auto redises = json.object("redis");
        for (const RedisReport &redis : report.redises) {
            json.line();
            write_redis(json, redis);
        }
    });
}

ngx_int_t send_metrics(ngx_http_request_t *r) {
    Report report;
    if (!report.collect(r)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    Writer text(r->pool);

    Metric build(text, {"limit_sliding_build_info", "gauge", "Versions, as labels."});
    build.set_owner({"version", kVersion});
    build.sample({"nginx", NGINX_VERSION}, 1);

    write_metrics(text, kZoneMetrics, report.zones);

    if (has_redis) { write_metrics(text, kSourceMetrics, report.zones); }

    if (!report.redises.empty()) { write_metrics(text, kRedisMetrics, report.redises); }

    return send_text(r, NGX_HTTP_OK, "text/plain; version=0.0.4", text);
}

} // namespace limit_sliding
