
/*
 * Copyright (C) the limit_sliding authors
 */

/* What the API says of every Redis that a zone uses. */

#include "http/api/redis_report.hpp"

#include "http/api/metrics.hpp"
#include "http/api/writer.hpp"
#include "http/configuration.hpp"
#include "http/module.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static Redis *next_redis(ngx_http_request_t *r, ngx_uint_t *i);
static void json_redis(Writer *text, Redis *redis);
static void json_latencies(Writer *text, CallCounters *traffic);
static void metrics_redis(Writer *text, char *name, Redis *redis);
static void metrics_latencies(Writer *text, Redis *redis);

/* Those of one number each. */

static struct {
    char *name;
    char *type;
    char *help;
} redis_metrics[] = {

    {"limit_sliding_redis_failed_calls_total", "counter",
     "Calls without an answer, or answered by an error."},

    {"limit_sliding_redis_breaker_opened_total", "counter",
     "How often the circuit breaker has opened."},

    {"limit_sliding_redis_leased_total", "counter",
     "Requests whose units calls have taken in advance."},

    {"limit_sliding_redis_breaker_open", "gauge",
     "1 while the circuit breaker is open, so that Redis is not asked."}};

/* From the i-th on; advances i past it. */

static Redis *next_redis(ngx_http_request_t *r, ngx_uint_t *i)
{
    Redis **redises;
    MainConf *lsmcf;

    lsmcf = ngx_http_get_module_main_conf(r, ngx_http_limit_sliding_module);

    redises = lsmcf->redises.begin();

    while (*i < lsmcf->redises.size()) {

        /* that of a block which no zone uses is NULL */

        if (redises[(*i)++]->shared) {
            return redises[*i - 1];
        }
    }

    return NULL;
}

void json_redises(ngx_http_request_t *r, Writer *text)
{
    char *separator;
    ngx_uint_t i;
    Redis *redis;

    i = 0;
    separator = "\n";

    while ((redis = next_redis(r, &i)) != NULL) {
        print(text, separator);
        json_redis(text, redis);
        separator = ",\n";
    }
}

static void json_redis(Writer *text, Redis *redis)
{
    ngx_uint_t i;
    Server *servers;
    CallCounters traffic;

    print_json(text, &redis->settings.name);
    print(text, ":{\"servers\":[");

    servers = redis->settings.servers.elts;

    for (i = 0; i < redis->settings.servers.nelts; i++) {
        print(text, i ? "," : "");
        print_json(text, &servers[i].text);
    }

    traffic = sum_of(redis->shared->calls);

    print(text,
          "],\"topology\":\"%s\","
          "\"on_error\":\"%s\",\"timeout_ms\":%M,"
          "\"breaker\":\"%s\",\"breaker_opened\":%uA,"
          "\"failed_calls\":%uA,"
          "\"leased\":%uA",
          kTopologyWords[index_of(redis->settings.topology)].data(),
          kOnErrorWords[index_of(redis->settings.on_error)].data(),
          redis->settings.timeout,
          limit_sliding::breaker_is_open(&redis->shared->breaker) ? "open"
                                                                  : "closed",
          traffic.opened, traffic.failed, traffic.leased);

    json_latencies(text, &traffic);
    print(text, "}");
}

/* Of calls that were answered, as many as so many microseconds or less took. */

static void json_latencies(Writer *text, CallCounters *traffic)
{
    uint64_t calls;
    ngx_uint_t i;

    calls = 0;

    print(text, ",\"latency\":{\"buckets\":[");

    for (i = 0; i < kLatencies - 1; i++) {
        calls += traffic->latencies[i];

        print(text, "%s{\"le_us\":%uD,\"calls\":%uL}", i ? "," : "",
              kLatenciesUs[i], calls);
    }

    calls += traffic->latencies[i];

    print(text, "],\"sum_us\":%uA},\"calls\":%uL", traffic->sum_us, calls);
}

/* How many units a lease of the zone has. */

void json_leases(Writer *text, ZoneConf *zone)
{
    if (zone->remote.lease == 0) {
        print(text, ",\"leases\":null");

    } else if (zone->remote.lease == kLeaseAuto) {
        print(text, ",\"leases\":{\"size\":\"auto\"}");

    } else {
        print(text, ",\"leases\":{\"size\":%uD}", zone->remote.lease);
    }
}

void metrics_redises(ngx_http_request_t *r, Writer *text)
{
    ngx_uint_t i, j;
    ngx_atomic_uint_t values[4];
    Redis *redis;
    CallCounters traffic;

    i = 0;

    if (next_redis(r, &i) == NULL) {
        return;
    }

    for (j = 0; j < 4; j++) {
        metrics_head(text, redis_metrics[j].name, redis_metrics[j].type,
                     redis_metrics[j].help);
        i = 0;

        while ((redis = next_redis(r, &i)) != NULL) {
            traffic = sum_of(redis->shared->calls);

            values[0] = traffic.failed;
            values[1] = traffic.opened;
            values[2] = traffic.leased;
            values[3] = limit_sliding::breaker_is_open(&redis->shared->breaker);

            metrics_redis(text, redis_metrics[j].name, redis);
            print(text, "} %uA\n", values[j]);
        }
    }

    metrics_head(text, "limit_sliding_redis_call_duration_seconds", "histogram",
                 "Round trips of calls that Redis "
                 "answered.");
    i = 0;

    while ((redis = next_redis(r, &i)) != NULL) {
        metrics_latencies(text, redis);
    }
}

/* The beginning of a sample. */

static void metrics_redis(Writer *text, char *name, Redis *redis)
{
    print(text, "%s{redis=", name);
    print_label(text, &redis->settings.name);
}

static void metrics_latencies(Writer *text, Redis *redis)
{
    uint32_t us;
    uint64_t calls;
    ngx_uint_t i;
    CallCounters traffic;

    traffic = sum_of(redis->shared->calls);

    calls = 0;

    for (i = 0; i < kLatencies - 1; i++) {
        us = kLatenciesUs[i];
        calls += traffic.latencies[i];

        metrics_redis(text, "limit_sliding_redis_call_duration_seconds_bucket",
                      redis);
        print(text, ",le=\"%uD.%06uD\"} %uL\n", us / 1000000, us % 1000000,
              calls);
    }

    calls += traffic.latencies[i];

    metrics_redis(text, "limit_sliding_redis_call_duration_seconds_bucket",
                  redis);
    print(text, ",le=\"+Inf\"} %uL\n", calls);

    metrics_redis(text, "limit_sliding_redis_call_duration_seconds_sum", redis);
    print(text, "} %uA.%06uA\n", traffic.sum_us / 1000000,
          traffic.sum_us % 1000000);

    metrics_redis(text, "limit_sliding_redis_call_duration_seconds_count",
                  redis);
    print(text, "} %uL\n", calls);
}

} // namespace limit_sliding
