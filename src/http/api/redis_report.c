
/*
 * Copyright (C) the limit_sliding authors
 */


/* What the API says of every Redis that a zone uses. */


#include "http/api/api.h"


static ngx_http_limit_sliding_redis_t *ngx_http_limit_sliding_next_redis(
    ngx_http_request_t *r, ngx_uint_t *i);
static void ngx_http_limit_sliding_json_redis(
    ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_redis_t *redis);
static void ngx_http_limit_sliding_json_latencies(
    ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_traffic_t *traffic);
static void ngx_http_limit_sliding_metrics_redis(
    ngx_http_limit_sliding_text_t *text, char *name,
    ngx_http_limit_sliding_redis_t *redis);
static void ngx_http_limit_sliding_metrics_latencies(
    ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_redis_t *redis);


/* Those of one number each. */

static struct {
    char  *name;
    char  *type;
    char  *help;
} ngx_http_limit_sliding_redis_metrics[] = {

    { "limit_sliding_redis_failed_calls_total", "counter",
      "Calls without an answer, or answered by an error." },

    { "limit_sliding_redis_breaker_opened_total", "counter",
      "How often the circuit breaker has opened." },

    { "limit_sliding_redis_leased_total", "counter",
      "Requests whose units calls have taken in advance." },

    { "limit_sliding_redis_breaker_open", "gauge",
      "1 while the circuit breaker is open, so that Redis is not asked." }
};


/* From the i-th on; advances i past it. */

static ngx_http_limit_sliding_redis_t *
ngx_http_limit_sliding_next_redis(ngx_http_request_t *r, ngx_uint_t *i)
{
    ngx_http_limit_sliding_redis_t      **redises;
    ngx_http_limit_sliding_main_conf_t   *lsmcf;

    lsmcf = ngx_http_get_module_main_conf(r, ngx_http_limit_sliding_module);

    redises = lsmcf->redises.elts;

    while (*i < lsmcf->redises.nelts) {

        /* that of a block which no zone uses is NULL */

        if (redises[(*i)++]->shared) {
            return redises[*i - 1];
        }
    }

    return NULL;
}


void
ngx_http_limit_sliding_json_redises(ngx_http_request_t *r,
    ngx_http_limit_sliding_text_t *text)
{
    char                            *separator;
    ngx_uint_t                       i;
    ngx_http_limit_sliding_redis_t  *redis;

    i = 0;
    separator = "\n";

    while ((redis = ngx_http_limit_sliding_next_redis(r, &i)) != NULL) {
        ngx_http_limit_sliding_print(text, separator);
        ngx_http_limit_sliding_json_redis(text, redis);
        separator = ",\n";
    }
}


static void
ngx_http_limit_sliding_json_redis(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_redis_t *redis)
{
    ngx_str_t                         *topology, *on_error;
    ngx_uint_t                         i;
    ngx_http_limit_sliding_server_t   *servers;
    ngx_http_limit_sliding_traffic_t   traffic;

    topology = &ngx_http_limit_sliding_topology_words[redis->topology];
    on_error = &ngx_http_limit_sliding_on_error_words[redis->on_error];

    ngx_http_limit_sliding_print_json(text, &redis->name);
    ngx_http_limit_sliding_print(text, ":{\"servers\":[");

    servers = redis->servers.elts;

    for (i = 0; i < redis->servers.nelts; i++) {
        ngx_http_limit_sliding_print(text, i ? "," : "");
        ngx_http_limit_sliding_print_json(text, &servers[i].text);
    }

    ngx_http_limit_sliding_redis_traffic(redis, &traffic);

    ngx_http_limit_sliding_print(text, "],\"topology\":\"%V\","
                                 "\"on_error\":\"%V\",\"timeout_ms\":%M,"
                                 "\"breaker\":\"%s\",\"breaker_opened\":%uA,"
                                 "\"failed_calls\":%uA,"
                                 "\"leased\":%uA",
                                 topology, on_error, redis->timeout,
                                 limit_sliding_breaker_is_open(
                                                      &redis->shared->breaker)
                                 ? "open" : "closed",
                                 traffic.opened, traffic.failed,
                                 traffic.leased);

    ngx_http_limit_sliding_json_latencies(text, &traffic);
    ngx_http_limit_sliding_print(text, "}");
}


/* Of calls that were answered, as many as so many microseconds or less took. */

static void
ngx_http_limit_sliding_json_latencies(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_traffic_t *traffic)
{
    uint64_t    calls;
    ngx_uint_t  i;

    calls = 0;

    ngx_http_limit_sliding_print(text, ",\"latency\":{\"buckets\":[");

    for (i = 0; i < NGX_HTTP_LIMIT_SLIDING_NLATENCIES - 1; i++) {
        calls += traffic->latencies[i];

        ngx_http_limit_sliding_print(text, "%s{\"le_us\":%uD,\"calls\":%uL}",
                                     i ? "," : "",
                                     ngx_http_limit_sliding_latencies_us[i],
                                     calls);
    }

    calls += traffic->latencies[i];

    ngx_http_limit_sliding_print(text, "],\"sum_us\":%uA},\"calls\":%uL",
                                 traffic->sum_us, calls);
}


/* How many units a lease of the zone has. */

void
ngx_http_limit_sliding_json_leases(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_zone_t *zone)
{
    if (zone->remote.lease == 0) {
        ngx_http_limit_sliding_print(text, ",\"leases\":null");

    } else if (zone->remote.lease == LIMIT_SLIDING_LEASE_AUTO) {
        ngx_http_limit_sliding_print(text, ",\"leases\":{\"size\":\"auto\"}");

    } else {
        ngx_http_limit_sliding_print(text, ",\"leases\":{\"size\":%uD}",
                                     zone->remote.lease);
    }
}


void
ngx_http_limit_sliding_metrics_redises(ngx_http_request_t *r,
    ngx_http_limit_sliding_text_t *text)
{
    ngx_uint_t                         i, j;
    ngx_atomic_uint_t                  values[4];
    ngx_http_limit_sliding_redis_t    *redis;
    ngx_http_limit_sliding_traffic_t   traffic;

    i = 0;

    if (ngx_http_limit_sliding_next_redis(r, &i) == NULL) {
        return;
    }

    for (j = 0; j < 4; j++) {
        ngx_http_limit_sliding_metrics_head(text,
                                  ngx_http_limit_sliding_redis_metrics[j].name,
                                  ngx_http_limit_sliding_redis_metrics[j].type,
                                  ngx_http_limit_sliding_redis_metrics[j].help);
        i = 0;

        while ((redis = ngx_http_limit_sliding_next_redis(r, &i)) != NULL) {
            ngx_http_limit_sliding_redis_traffic(redis, &traffic);

            values[0] = traffic.failed;
            values[1] = traffic.opened;
            values[2] = traffic.leased;
            values[3] = limit_sliding_breaker_is_open(&redis->shared->breaker);

            ngx_http_limit_sliding_metrics_redis(text,
                                  ngx_http_limit_sliding_redis_metrics[j].name,
                                  redis);
            ngx_http_limit_sliding_print(text, "} %uA\n", values[j]);
        }
    }

    ngx_http_limit_sliding_metrics_head(text,
                         "limit_sliding_redis_call_duration_seconds",
                         "histogram", "Round trips of calls that Redis "
                         "answered.");
    i = 0;

    while ((redis = ngx_http_limit_sliding_next_redis(r, &i)) != NULL) {
        ngx_http_limit_sliding_metrics_latencies(text, redis);
    }
}


/* The beginning of a sample. */

static void
ngx_http_limit_sliding_metrics_redis(ngx_http_limit_sliding_text_t *text,
    char *name, ngx_http_limit_sliding_redis_t *redis)
{
    ngx_http_limit_sliding_print(text, "%s{redis=", name);
    ngx_http_limit_sliding_print_label(text, &redis->name);
}


static void
ngx_http_limit_sliding_metrics_latencies(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_redis_t *redis)
{
    uint32_t                           us;
    uint64_t                           calls;
    ngx_uint_t                         i;
    ngx_http_limit_sliding_traffic_t   traffic;

    ngx_http_limit_sliding_redis_traffic(redis, &traffic);

    calls = 0;

    for (i = 0; i < NGX_HTTP_LIMIT_SLIDING_NLATENCIES - 1; i++) {
        us = ngx_http_limit_sliding_latencies_us[i];
        calls += traffic.latencies[i];

        ngx_http_limit_sliding_metrics_redis(text,
                      "limit_sliding_redis_call_duration_seconds_bucket",
                      redis);
        ngx_http_limit_sliding_print(text, ",le=\"%uD.%06uD\"} %uL\n",
                                     us / 1000000, us % 1000000, calls);
    }

    calls += traffic.latencies[i];

    ngx_http_limit_sliding_metrics_redis(text,
                      "limit_sliding_redis_call_duration_seconds_bucket",
                      redis);
    ngx_http_limit_sliding_print(text, ",le=\"+Inf\"} %uL\n", calls);

    ngx_http_limit_sliding_metrics_redis(text,
                      "limit_sliding_redis_call_duration_seconds_sum",
                      redis);
    ngx_http_limit_sliding_print(text, "} %uA.%06uA\n",
                                 traffic.sum_us / 1000000,
                                 traffic.sum_us % 1000000);

    ngx_http_limit_sliding_metrics_redis(text,
                      "limit_sliding_redis_call_duration_seconds_count",
                      redis);
    ngx_http_limit_sliding_print(text, "} %uL\n", calls);
}
