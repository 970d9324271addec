/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/api/report.hpp"

#include <algorithm>

#include "http/api/key_address.hpp"
#include "http/api/metrics.hpp"
#include "http/api/response.hpp"
#include "http/configuration.hpp"
#include "http/variables.hpp"
#include "ngx/array.hpp"

namespace limit_sliding {

namespace {

constexpr char kVersion[] = "0.1.0";

/*
 * The bytes of all zones' slots that are looked at to tell how many keys live:
 * less than a millisecond's work.
 */
constexpr uint64_t kWalkBytes = 1024 * 1024;

/* By Count. */
constexpr const char *kCountNames[]
    = {"passed",          "delayed",          "rejected",
       "delayed_dry_run", "rejected_dry_run", "errors"};

/* The numbers of a zone at one moment. */
struct ZoneReport {
    const ZoneConf *conf;
    Counters counters;
    uint64_t slots;
    uint64_t keys;

    Label label() const { return {"zone", view(conf->name)}; }
};

/* The numbers of a Redis that a zone uses. */
struct RedisReport {
    const Redis *redis;
    CallCounters traffic;
    uint64_t is_open; /* its breaker, 0 or 1 */

    Label label() const { return {"redis", view(redis->settings.name)}; }
};

struct Report {
    Array<ZoneReport> zones;
    Array<RedisReport> redises;

    bool collect(ngx_http_request_t *r);
};

/* A metric of which each sample is one number. */
template <class T>
struct SimpleMetric {
    MetricHead head;
    uint64_t (*value)(const T &report);
};

constexpr SimpleMetric<ZoneReport> kZoneMetrics[] = {
    {{"limit_sliding_errors_total", "counter",
      "Keys, rates and costs of requests that could not be used."},
     [](auto &zone) { return zone.counters.requests[kCountErrors]; }},
    {{"limit_sliding_evicted_total", "counter",
      "Unexpired states given up for new keys."},
     [](auto &zone) { return zone.counters.slots.evicted; }},
    {{"limit_sliding_refused_total", "counter",
      "New keys refused because the zone was full."},
     [](auto &zone) { return zone.counters.slots.refused; }},
    {{"limit_sliding_keys", "gauge",
      "Unexpired states, estimated in a large zone."},
     [](auto &zone) { return zone.keys; }},
    {{"limit_sliding_slots", "gauge", "States that the zone has room for."},
     [](auto &zone) { return zone.slots; }},
    {{"limit_sliding_slots_used", "gauge", "Slots that have ever been used."},
     [](auto &zone) { return zone.counters.slots.used; }},
    {{"limit_sliding_own_limits", "gauge", "Keys with a limit of their own."},
     [](auto &zone) { return zone.conf->memory.aside.own->held; }},
    {{"limit_sliding_zone_bytes", "gauge", "Size of the zone."},
     [](auto &zone) { return zone.conf->size; }},
};

constexpr SimpleMetric<RedisReport> kRedisMetrics[] = {
    {{"limit_sliding_redis_failed_calls_total", "counter",
      "Calls without an answer, or answered by an error."},
     [](auto &redis) { return redis.traffic.failed; }},
    {{"limit_sliding_redis_breaker_opened_total", "counter",
      "How often the circuit breaker has opened."},
     [](auto &redis) { return redis.traffic.opened; }},
    {{"limit_sliding_redis_leased_total", "counter",
      "Requests whose units calls have taken in advance."},
     [](auto &redis) { return redis.traffic.leased; }},
    {{"limit_sliding_redis_breaker_open", "gauge",
      "1 while the circuit breaker is open, so that Redis is not asked."},
     [](auto &redis) { return redis.is_open; }},
};

/* False: no memory. */
bool Report::collect(ngx_http_request_t *r)
{
    const MainConf &main = main_conf(r);

    for (const ZoneConf *conf : main.zones) {
        ZoneReport *zone = zones.add(r->pool);
        if (zone == nullptr) {
            return false;
        }

        ZoneStats stats;
        zone_stats(conf->memory.table, &stats);
        counters_sum(conf->memory.aside.counters, conf->memory.aside.ncounters,
                     &zone->counters);

        zone->conf = conf;
        zone->slots = stats.slots;
        zone->keys
            = zone_keys(conf->memory.table, &conf->policy, ngx_current_msec,
                        std::max(conf->limit, 1u), zone->counters.slots.used,
                        kWalkBytes / main.zones.size());
    }

    for (Redis *redis : main.redises) {
        if (redis->shared == nullptr) {
            continue; /* no zone uses it */
        }

        RedisReport *report = redises.add(r->pool);
        if (report == nullptr) {
            return false;
        }

        report->redis = redis;
        report->is_open = breaker_is_open(&redis->shared->breaker);
        report->traffic = sum_of(redis->shared->calls);
    }

    return true;
}

/* Calls it with the name and the number of each source but the local one. */
template <class Function>
void each_source(const Counters &counters, Function function)
{
    for (size_t i = index_of(Source::kRedis); i < kNsources; i++) {
        function(view(source_names[i]), counters.sources[i]);
    }
}

/*
 * Calls it for each bound with how many calls took so many microseconds or
 * less.  Returns how many there were in all.
 */
template <class Function>
uint64_t each_latency(const CallCounters &traffic, Function function)
{
    uint64_t calls = 0;

    for (size_t i = 0; i < kLatencies - 1; i++) {
        calls += traffic.latencies[i];
        function(kLatenciesUs[i], calls);
    }

    return calls + traffic.latencies[kLatencies - 1];
}

void write_settings(Json &json, const ZoneConf &zone)
{
    const Policy &policy = zone.policy;

    json.field("key", zone.key.complex.value);
    json.field("rate", zone.rate_text);
    json.field("limit", zone.limit != 0 ? &zone.limit : nullptr);
    json.field("window_ms", policy.window_ms);
    json.field("algorithm", algorithm_names[index_of(policy.algorithm)]);
    json.field("full", policy.full == WhenFull::kDeny ? "deny" : "evict");

    if (policy.algorithm == Algorithm::kCounter) {
        json.field("precision", std::max(policy.precision, 1u));
    }

    if (policy.algorithm == Algorithm::kLeakyBucket || policy.burst != 0) {
        json.field("burst", policy.burst);
    }

    json.field("redis",
               zone.redis != nullptr ? &zone.redis->settings.name : nullptr);
}

void write_leases(Json &json, uint32_t lease)
{
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
void write_offenders(Json &json, const ZoneConf &zone)
{
    if (!zone.top) {
        json.field("top", nullptr);
        return;
    }

    Offender offenders[kTopKeys];
    const size_t n
        = top_read(zone.memory.aside.top, ngx_current_msec, offenders);
    auto top = json.array("top");

    for (const Offender &offender : Span(offenders, n)) {
        const size_t len = std::min<size_t>(offender.bytes, kTopBytes);
        auto object = json.object();

        write_key(json, zone, view(offender.key, len));
        json.field("truncated", len < offender.bytes);
        json.field("rejected", offender.rejected);
    }
}

void write_zone(Json &json, const ZoneReport &zone)
{
    const Counters &counters = zone.counters;
    auto object = json.object(view(zone.conf->name));

    write_settings(json, *zone.conf);
    json.field("bytes", zone.conf->size);
    json.field("slots", zone.slots);
    json.field("slots_used", counters.slots.used);
    json.field("keys", zone.keys);
    json.field("own_limits", zone.conf->memory.aside.own->held);

    for (size_t i = 0; i < kNrequests; i++) {
        json.field(kCountNames[i], counters.requests[i]);
    }

    json.field("evicted", counters.slots.evicted);
    json.field("refused", counters.slots.refused);

    if (zone.conf->redis != nullptr) {
        {
            auto sources = json.object("sources");
            each_source(counters,
                        [&](auto name, auto n) { json.field(name, n); });
        }

        write_leases(json, zone.conf->remote.lease);
    }

    write_offenders(json, *zone.conf);
}

/* Returns how many calls there were. */
uint64_t write_latency(Json &json, const CallCounters &traffic)
{
    auto latency = json.object("latency");
    uint64_t calls;

    {
        auto buckets = json.array("buckets");

        calls = each_latency(traffic, [&](uint32_t us, uint64_t n) {
            auto bucket = json.object();
            json.field("le_us", us);
            json.field("calls", n);
        });
    }

    json.field("sum_us", traffic.sum_us);
    return calls;
}

void write_redis(Json &json, const RedisReport &redis)
{
    const Settings &settings = redis.redis->settings;
    const CallCounters &traffic = redis.traffic;
    auto object = json.object(view(settings.name));

    {
        auto servers = json.array("servers");

        for (const Server &server : span<Server>(settings.servers)) {
            json.field({}, server.text);
        }
    }

    json.field("topology", kTopologyWords[index_of(settings.topology)]);
    json.field("on_error", kOnErrorWords[index_of(settings.on_error)]);
    json.field("timeout_ms", settings.timeout);
    json.field("breaker", redis.is_open ? "open" : "closed");
    json.field("breaker_opened", traffic.opened);
    json.field("failed_calls", traffic.failed);
    json.field("leased", traffic.leased);
    json.field("calls", write_latency(json, traffic));
}

template <class T, size_t N>
void write_metrics(Writer &out, const SimpleMetric<T> (&table)[N],
                   const Array<T> &reports)
{
    for (const auto &row : table) {
        Metric metric(out, row.head);

        for (const T &report : reports) {
            metric.sample({report.label()}, row.value(report));
        }
    }
}

void write_zone_metrics(Writer &out, const Array<ZoneReport> &zones)
{
    Metric requests(out, {"limit_sliding_requests_total", "counter",
                          "Requests that the zone decided."});

    for (const ZoneReport &zone : zones) {
        for (size_t i = 0; i < kCountErrors; i++) {
            requests.sample({zone.label(), {"status", kCountNames[i]}},
                            zone.counters.requests[i]);
        }
    }

    write_metrics(out, kZoneMetrics, zones);

    Metric limit(out,
                 {"limit_sliding_limit", "gauge",
                  "Requests a window, where that is the same for all keys."});

    for (const ZoneReport &zone : zones) {
        if (zone.conf->limit != 0) {
            limit.sample({zone.label()}, zone.conf->limit);
        }
    }

    Metric window(out, {"limit_sliding_window_seconds", "gauge",
                        "Length of the window."});

    for (const ZoneReport &zone : zones) {
        window.sample({zone.label()}, {zone.conf->policy.window_ms, 3});
    }

    if (!has_redis) {
        return;
    }

    Metric decisions(out, {"limit_sliding_decisions_total", "counter",
                           "Where requests of a zone in Redis were decided."});

    for (const ZoneReport &zone : zones) {
        if (zone.conf->redis != nullptr) {
            each_source(zone.counters, [&](auto name, auto n) {
                decisions.sample({zone.label(), {"source", name}}, n);
            });
        }
    }
}

void write_redis_metrics(Writer &out, const Array<RedisReport> &redises)
{
    if (redises.empty()) {
        return;
    }

    write_metrics(out, kRedisMetrics, redises);

    Metric duration(out,
                    {"limit_sliding_redis_call_duration_seconds", "histogram",
                     "Round trips of calls that Redis answered."});

    for (const RedisReport &redis : redises) {
        const Label label = redis.label();
        const uint64_t calls
            = each_latency(redis.traffic, [&](uint32_t us, uint64_t n) {
                  duration.sample({label, {"le", Number(us, 6).text()}}, n,
                                  "_bucket");
              });

        duration.sample({label, {"le", "+Inf"}}, calls, "_bucket");
        duration.sample({label}, {redis.traffic.sum_us, 6}, "_sum");
        duration.sample({label}, calls, "_count");
    }
}

} // namespace

ngx_int_t send_report(ngx_http_request_t *r)
{
    Report report;

    if (!report.collect(r)) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return send_json(r, NGX_HTTP_OK, [&](Json &json) {
        const ngx_time_t *now = ngx_timeofday();

        json.field("version", kVersion);
        json.field("nginx", NGINX_VERSION);
        json.field("time_ms", now->sec * 1000 + now->msec);

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

ngx_int_t send_metrics(ngx_http_request_t *r)
{
    Report report;

    if (!report.collect(r)) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    Writer text(r->pool);

    Metric(text, {"limit_sliding_build_info", "gauge", "Versions, as labels."})
        .sample({{"version", kVersion}, {"nginx", NGINX_VERSION}}, 1);
    write_zone_metrics(text, report.zones);
    write_redis_metrics(text, report.redises);

    return send_text(r, NGX_HTTP_OK, "text/plain; version=0.0.4", text);
}

} // namespace limit_sliding
