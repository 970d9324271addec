/* Copyright (C) the limit_sliding authors */

#include "http/api/api.hpp"

#include <algorithm>

#include "core/facts/offenders.hpp"
#include "core/policy/shape.hpp"
#include "core/policy/statistics.hpp"
#include "core/table/zone.hpp"
#include "http/api/report_numbers.hpp"
#include "http/api/timelines.hpp"
#include "http/json/api_response.hpp"
#include "http/response/variables.hpp"
#include "ngx/containers.hpp"
#include "ngx/strings.hpp"
#include "redis/errands/server_memory.hpp"
#include "redis/shared/leases.hpp"

namespace limit_sliding {
namespace {

constexpr char kVersion[] = "1.0.0";

/* Bytes of slots that a report reads to estimate the keys of all zones, in less than 1 ms. */
constexpr uint64_t kWalkBytes = 1024 * 1024;

/* Places of bans that a report reads to estimate the banned keys of all zones. */
constexpr uint64_t kWalkPlaces = kWalkBytes / 16;

/* Names of the counts of requests, by Count. */
constexpr const char *kCountNames[] = {
    "passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run", "unlimited", "errors"};

/* The first source of decisions that is not local. */
constexpr size_t kFirstSource = index_of(Source::kRedis);

/* The numbers of a zone at one moment. */
struct ZoneReport {
    const ZoneConf *conf;
    Statistics counters;
    DecisionTimes times;
    uint64_t slots;
    uint64_t keys;
    KeyShares shares;
    uint64_t banned;
    Ledger::Sums in_flight;
    uint64_t in_flight_max;

    bool holds() const { return conf->policy.is_in_flight(); }
    bool bans() const { return conf->rejected.are_banned(); }
    Label label() const { return {"zone", view(conf->name)}; }
    /* Returns true if the keys are in this node's memory, and have one limit. */
    bool has_shares() const {
        return conf->limit != 0 && (!conf->is_remote() || conf->remote.sync_ms != 0);
    }

    uint64_t overrides() const { return conf->memory.aside.overrides->count(); }
};

/* The numbers of a Redis that a zone uses. */
struct RedisReport {
    const Redis *redis;
    CallCounters calls;
    bool is_open; /* the circuit breaker is open */
    std::optional<ServerMemory> memory;

    Label label() const { return {"redis", view(redis->settings.name)}; }
};

struct Report {
    Array<ZoneReport> zones;
    Array<RedisReport> redises;

    bool collect(ngx_http_request_t *r);
};

/* Returns the length of the present window in ms. */
uint64_t window_ms(const ZoneConf &zone) {
    return zone.policy.length_ms(ngx_current_msec + zone.memory.table->offset_ms);
}

constexpr MetricRow<ZoneReport> kZoneMetrics[] = {
    {{"limit_sliding_zone_info", "gauge",
      "Algorithm, window or calendar, and precision of the zone, as a label.", "shape"},
     [](auto &out, auto &zone) { out.text("shape", Shape(zone.conf->policy).text()); }},
    {{"limit_sliding_limit", "gauge",
      "Requests a window, or units in flight, where that is the same for all keys."},
     [](auto &out, auto &zone) {
         if (zone.conf->limit != 0) { out.metric_only(zone.conf->limit); }
     }},
    {{"limit_sliding_window_seconds", "gauge", "Length of the window."},
     [](auto &out, auto &zone) {
         if (!zone.holds()) { out.metric_only({window_ms(*zone.conf), 3}); }
     }},
    {{"limit_sliding_held", "gauge", "Units that requests in flight hold."},
     [](auto &out, auto &zone) { out.number("held", zone.in_flight.units, zone.holds()); }},
    {{"limit_sliding_in_flight", "gauge", "Requests in flight."},
     [](auto &out, auto &zone) { out.number("in_flight", zone.in_flight.requests, zone.holds()); }},
    {{"limit_sliding_in_flight_max", "gauge", "Requests in flight that the zone has room for."},
     [](auto &out, auto &zone) { out.number("in_flight_max", zone.in_flight_max, zone.holds()); }},
    {{"limit_sliding_longest_seconds", "gauge", "Age of the oldest request in flight."},
     [](auto &out, auto &zone) { out.number("longest", zone.in_flight.longest_s, zone.holds()); }},
    {{"limit_sliding_zone_bytes", "gauge", "Size of the zone."},
     [](auto &out, auto &zone) { out.number("bytes", zone.conf->size); }},
    {{"limit_sliding_slots", "gauge", "States that the zone has room for."},
     [](auto &out, auto &zone) { out.number("slots", zone.slots); }},
    {{"limit_sliding_slots_used", "gauge", "Slots that have ever been used."},
     [](auto &out, auto &zone) { out.number("slots_used", zone.counters.slots.used); }},
    {{"limit_sliding_keys", "gauge", "Unexpired states, estimated in a large zone."},
     [](auto &out, auto &zone) { out.number("keys", zone.keys); }},
    {{"limit_sliding_own_limits", "gauge", "Keys with a limit of their own."},
     [](auto &out, auto &zone) { out.number("own_limits", zone.overrides()); }},
    {{"limit_sliding_requests_total", "counter", "Requests that reached a limit of the zone.",
      "status"},
     [](auto &out, auto &zone) {
         for (size_t i = 0; i < kCountErrors; i++) {
             out.number(kCountNames[i], zone.counters.requests[i]);
         }
     }},
    {{"limit_sliding_errors_total", "counter",
      "Rates and costs of requests that could not be used."},
     [](auto &out, auto &zone) { out.number("errors", zone.counters.requests[kCountErrors]); }},
    {{"limit_sliding_usage_missing_total", "counter",
      "Responses without the name of limit_sliding_usage."},
     [](auto &out, auto &zone) {
         out.number("usage_missing", load(zone.conf->memory.aside.usage_missing));
     }},
    {{"limit_sliding_evicted_total", "counter", "Unexpired states evicted for new keys."},
     [](auto &out, auto &zone) { out.number("evicted", zone.counters.slots.evicted); }},
    {{"limit_sliding_refused_total", "counter", "New keys refused because the zone was full."},
     [](auto &out, auto &zone) { out.number("refused", zone.counters.slots.refused); }},
    {{"limit_sliding_bans_total", "counter", "Bans of keys that have begun."},
     [](auto &out, auto &zone) { out.number("bans", zone.counters.bans, zone.bans()); }},
    {{"limit_sliding_banned_requests_total", "counter", "Requests rejected by a ban."},
     [](auto &out, auto &zone) {
         out.number("banned_requests", zone.counters.banned_requests, zone.bans());
     }},
    {{"limit_sliding_banned", "gauge", "Keys that are banned, estimated in a large zone."},
     [](auto &out, auto &zone) { out.number("banned", zone.banned, zone.bans()); }},
    {{"limit_sliding_decision_duration_seconds", "histogram",
      "Times of a part of the decisions, of those that waited for nothing."},
     [](auto &out, auto &zone) {
         out.times("decision_times", zone.times, 9, "le_ns", "decisions", "sum_ns", "measured");
     }},
};

constexpr const char *kShareNames[] = {"0", "20", "40", "60", "80", "100"};
static_assert(std::size(kShareNames) == KeyShares::kBands, "a name for each band");

constexpr MetricRow<ZoneReport> kShareMetrics[] = {
    {{"limit_sliding_keys_by_share", "gauge",
      "Keys by used share of the zone's limit, from this percentage on, estimated in a large zone.",
      "percent"},
     [](auto &out, auto &zone) {
         for (size_t i = 0; zone.has_shares() && i < KeyShares::kBands; i++) {
             out.number(kShareNames[i], zone.shares.keys[i]);
         }
     }},
};

/* Metrics of zones in a build with hiredis. */
constexpr MetricRow<ZoneReport> kSourceMetrics[] = {
    {{"limit_sliding_decisions_total", "counter", "Where requests of a zone in Redis were decided.",
      "source"},
     [](auto &out, auto &zone) {
         for (size_t i = 0; zone.conf->is_remote() && i < kRemoteSources; i++) {
             out.number(kSourceNames[kFirstSource + i], zone.counters.sources[i]);
         }
     }},
};

constexpr MetricRow<RedisReport> kRedisMetrics[] = {
    {{"limit_sliding_redis_breaker_open", "gauge",
      "1 while the circuit breaker is open, so that Redis is not asked."},
     [](auto &out, auto &redis) { out.metric_only(redis.is_open); }},
    {{"limit_sliding_redis_breaker_opened_total", "counter",
      "How often the circuit breaker has opened."},
     [](auto &out, auto &redis) { out.number("breaker_opened", redis.calls.opened); }},
    {{"limit_sliding_redis_failed_calls_total", "counter",
      "Calls without an answer, or answered by an error."},
     [](auto &out, auto &redis) { out.number("failed_calls", redis.calls.failed); }},
    {{"limit_sliding_redis_leased_total", "counter",
      "Requests whose units calls have taken in advance."},
     [](auto &out, auto &redis) { out.number("leased", redis.calls.leased); }},
    {{"limit_sliding_unsettled_total", "counter",
      "Units whose settlement Redis did not take, which this node's memory has."},
     [](auto &out, auto &redis) { out.number("unsettled", redis.calls.unsettled); }},
    {{"limit_sliding_redis_clock_steps_total", "counter",
      "How often the clock of Redis was set back."},
     [](auto &out, auto &redis) { out.number("clock_steps", redis.calls.clock_steps); }},
    {{"limit_sliding_redis_foreign_states_total", "counter",
      "Decisions that found a state of another version of the module in Redis."},
     [](auto &out, auto &redis) { out.number("foreign_states", redis.calls.foreign); }},
    {{"limit_sliding_uncounted_total", "counter",
      "Units of requests in flight that Redis did not count for a while, because it lost them or "
      "did not hear from the worker."},
     [](auto &out, auto &redis) { out.number("uncounted", redis.calls.uncounted); }},
    {{"limit_sliding_redis_graces_total", "counter",
      "Times for which Redis granted no units in flight, because it might not know all units."},
     [](auto &out, auto &redis) { out.number("graces", redis.calls.graces); }},
    {{"limit_sliding_redis_grace_decisions_total", "counter",
      "Decisions by on_error at these times, which the source fallback contains."},
     [](auto &out, auto &redis) { out.number("grace_decisions", redis.calls.grace_decisions); }},
    {{"limit_sliding_redis_call_duration_seconds", "histogram",
      "Round trips of calls that Redis answered."},
     [](auto &out, auto &redis) {
         out.times("latency", redis.calls.latencies, 6, "le_us", "calls", "sum_us", "calls");
     }},
};

/* Metrics of the servers' memory, which a report may lack. */
constexpr MetricRow<RedisReport> kMemoryMetrics[] = {
    {{"limit_sliding_redis_memory_bytes", "gauge", "Memory that the masters of Redis use."},
     [](auto &out, auto &redis) {
         if (redis.memory) { out.number("bytes", redis.memory->bytes); }
     }},
    {{"limit_sliding_redis_memory_max_bytes", "gauge",
      "Memory that they may use, where each has a maximum."},
     [](auto &out, auto &redis) {
         const uint64_t max = redis.memory ? redis.memory->max_bytes : 0;
         out.number("max_bytes", max != 0 ? std::optional(max) : std::nullopt);
     }},
    {{"limit_sliding_redis_evicted_keys_total", "counter",
      "Keys that they have evicted for others."},
     [](auto &out, auto &redis) {
         if (redis.memory) { out.number("evicted", redis.memory->evicted); }
     }},
};

/* Collects all numbers.  Returns false if there is no memory. */
bool Report::collect(ngx_http_request_t *r) {
    const MainConf &main = main_conf(r);
    record_timelines(main);

    for (const ZoneConf *conf : main.zones) {
        ZoneReport *zone = zones.add(r->pool);
        if (zone == nullptr) { return false; }

        zone->counters = sum_of(conf->memory.aside.counters, conf->memory.aside.nstatistics);
        zone->times = sum_of(conf->memory.aside.times, 1);
        zone->conf = conf;
        zone->slots = conf->memory.table->slot_count();
        zone->keys = conf->memory.table->keys(conf->policy, ngx_current_msec, conf->any_limit(),
                                              zone->counters.slots.used,
                                              kWalkBytes / main.zones.size(), &zone->shares);
        zone->banned = zone->bans() ? conf->memory.aside.bans->banned(
                           ngx_current_msec, kWalkPlaces / main.zones.size() + 1)
                                    : 0;

        if (const Ledger *ledger = conf->memory.aside.ledger; ledger != nullptr) {
            zone->in_flight = ledger->sums(nullptr, ngx_current_msec);
            zone->in_flight_max = ledger->capacity();
        }
    }

    for (Redis *redis : main.redises) {
        if (redis->shared == nullptr) { continue; /* no zone uses it */ }

        RedisReport *report = redises.add(r->pool);
        if (report == nullptr) { return false; }

        report->redis = redis;
        report->is_open = redis->shared->breaker.is_open();
        report->calls = sum_of(redis->shared->calls, std::size(redis->shared->calls));

        if constexpr (kHasRedis) { report->memory = look_at_memory(*redis); }
    }

    return true;
}

/* Writes a number for which the configuration may have "auto" instead. */
void auto_field(Json &json, std::string_view name, uint32_t n, uint32_t automatic) {
    if (n == automatic) {
        json.field(name, "auto");
    } else {
        json.field(name, n);
    }
}

void write_settings(Json &json, const ZoneConf &zone) {
    const Policy &policy = zone.policy;

    json.field("key", zone.key.complex.value);
    const uint64_t length_ms = window_ms(zone);
    json.field("rate", policy.is_in_flight() ? nullptr : &zone.rate_text);
    json.field("inflight", policy.is_in_flight() ? &zone.rate_text : nullptr);
    json.field("limit", zone.limit != 0 ? &zone.limit : nullptr);
    json.field("window_ms", policy.is_in_flight() ? nullptr : &length_ms);
    json.field("algorithm", algorithm_names[index_of(policy.algorithm)]);
    json.field("full", policy.full == WhenFull::kDeny ? "deny" : "evict");

    if (policy.algorithm == Algorithm::kCounter) {
        auto_field(json, "precision", policy.precision, 0);
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

    json.field("redis", zone.is_remote() ? &zone.remote.redis->settings.name : nullptr);

    if (!zone.rejected.are_banned()) {
        json.field("penalty", nullptr);
        return;
    }

    auto penalty = json.object("penalty");
    json.field("time_ms", zone.rejected.penalty.penalty_ms);
    json.field("after", zone.rejected.penalty.after);
    json.field("max_ms", zone.rejected.penalty.max_ms);
}

/* Clients send the keys, which may be any bytes. */
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

void write_zone(Json &json, const ZoneReport &zone) {
    auto object = json.object(view(zone.conf->name));

    write_settings(json, *zone.conf);
    write_fields(json, kZoneMetrics, zone);

    {
        auto shares = json.object("shares");
        write_fields(json, kShareMetrics, zone);
    }

    write_timeline(json, *zone.conf->memory.aside.timeline);

    if (zone.conf->is_remote()) {
        {
            auto sources = json.object("sources");
            write_fields(json, kSourceMetrics, zone);
        }

        const RemoteZone &remote = zone.conf->remote;
        if (remote.lease != 0) {
            auto leases = json.object("leases");
            auto_field(json, "size", remote.lease, kLeaseAuto);
        } else {
            json.field("leases", nullptr);
        }

        json.field("on_error", kOnErrorWords[index_of(*remote.on_error)]);
        json.field("sync", remote.sync_ms != 0 ? &remote.sync_ms : nullptr);
    }

    write_offenders(json, *zone.conf);
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

    const uint64_t now_ms = ngx_current_msec;
    const uint64_t open_ms = now_ms - std::min(redis.redis->shared->breaker.opened_ms(), now_ms);
    json.field("open_ms", redis.is_open ? &open_ms : nullptr);

    write_fields(json, kRedisMetrics, redis);
    if (redis.memory) {
        auto memory = json.object("memory");
        write_fields(json, kMemoryMetrics, redis);
    } else {
        json.field("memory", nullptr);
    }

    write_timeline(json, redis.redis->shared->timeline);
}

} // namespace

ngx_int_t send_report(ngx_http_request_t *r) {
    Report report;
    if (!report.collect(r)) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    return send_json(r, NGX_HTTP_OK, [&](Json &json) {
        const ngx_time_t *now = ngx_timeofday();

        json.field("version", kVersion);
        json.field("nginx", NGINX_VERSION);
        json.field("host", view(const_cast<ngx_cycle_t *>(ngx_cycle)->hostname));
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

    Numbers build(text, {"limit_sliding_build_info", "gauge", "Versions, as labels."});
    build.set_owner({"version", kVersion});
    build.sample({"nginx", NGINX_VERSION}, 1);

    write_metrics(text, kZoneMetrics, report.zones);
    write_metrics(text, kShareMetrics, report.zones);

    if (kHasRedis) { write_metrics(text, kSourceMetrics, report.zones); }

    if (!report.redises.empty()) {
        write_metrics(text, kRedisMetrics, report.redises);
        write_metrics(text, kMemoryMetrics, report.redises);
    }

    return send_text(r, NGX_HTTP_OK, "text/plain; version=0.0.4", text);
}

} // namespace limit_sliding
