
/*
 * Copyright (C) the limit_sliding authors
 */

/* GET of "metrics": numbers for Prometheus; no key is ever among them. */

#include "http/api/metrics.hpp"

#include "http/api/redis_report.hpp"
#include "http/api/report.hpp"
#include "http/api/response.hpp"
#include "http/api/writer.hpp"
#include "http/variables.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static void metrics_zone(Writer *text, char *name, ZoneConf *zone);
static void metrics_requests(Writer *text, ZoneReport *reports, ngx_uint_t n);
static void metrics_settings(Writer *text, ZoneReport *reports, ngx_uint_t n);
static void metrics_sources(Writer *text, ZoneReport *reports, ngx_uint_t n);
static uint64_t metric_value(ZoneReport *report, ngx_uint_t i);

/* Those of a zone that are one number each. */

static struct {
    char *name;
    char *type;
    char *help;
} metrics_table[] = {

    {"limit_sliding_errors_total", "counter",
     "Keys, rates and costs of requests that could not be used."},

    {"limit_sliding_evicted_total", "counter",
     "Unexpired states given up for new keys."},

    {"limit_sliding_refused_total", "counter",
     "New keys refused because the zone was full."},

    {"limit_sliding_keys", "gauge",
     "Unexpired states, estimated in a large zone."},

    {"limit_sliding_slots", "gauge", "States that the zone has room for."},

    {"limit_sliding_slots_used", "gauge", "Slots that have ever been used."},

    {"limit_sliding_own_limits", "gauge", "Keys with a limit of their own."},

    {"limit_sliding_zone_bytes", "gauge", "Size of the zone."}};

ngx_int_t api_metrics(ngx_http_request_t *r)
{
    ngx_uint_t i, j, n;
    Writer text;
    ZoneReport *reports;

    reports = report_zones(r, &n);
    if (reports == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    text_init(&text, r->pool);

    metrics_head(&text, "limit_sliding_build_info", "gauge",
                 "Versions, as labels.");
    print(&text,
          "limit_sliding_build_info"
          "{version=\"%s\",nginx=\"%s\"} 1\n",
          kVersion, NGINX_VERSION);

    metrics_requests(&text, reports, n);

    for (i = 0; i < sizeof(metrics_table) / sizeof(metrics_table[0]); i++) {
        metrics_head(&text, metrics_table[i].name, metrics_table[i].type,
                     metrics_table[i].help);

        for (j = 0; j < n; j++) {
            metrics_zone(&text, metrics_table[i].name, reports[j].zone);
            print(&text, "} %uL\n", metric_value(&reports[j], i));
        }
    }

    metrics_settings(&text, reports, n);
    metrics_sources(&text, reports, n);
    metrics_redises(r, &text);

    return api_send(r, NGX_HTTP_OK, "text/plain; version=0.0.4", &text);
}

void metrics_head(Writer *text, char *name, char *type, char *help)
{
    print(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The beginning of a sample; the caller may add labels, and closes them. */

static void metrics_zone(Writer *text, char *name, ZoneConf *zone)
{
    print(text, "%s{zone=", name);
    print_label(text, &zone->name);
}

static void metrics_requests(Writer *text, ZoneReport *reports, ngx_uint_t n)
{
    ngx_uint_t i, j;

    metrics_head(text, "limit_sliding_requests_total", "counter",
                 "Requests that the zone decided.");

    for (i = 0; i < n; i++) {
        for (j = 0; j < kCountErrors; j++) {
            metrics_zone(text, "limit_sliding_requests_total", reports[i].zone);
            print(text, ",status=\"%s\"} %uL\n", count_names[j],
                  reports[i].counters.requests[j]);
        }
    }
}

static void metrics_settings(Writer *text, ZoneReport *reports, ngx_uint_t n)
{
    ngx_uint_t i;
    ZoneConf *zone;

    metrics_head(text, "limit_sliding_limit", "gauge",
                 "Requests a window, where that is the same for all keys.");

    for (i = 0; i < n; i++) {
        zone = reports[i].zone;

        if (zone->limit) {
            metrics_zone(text, "limit_sliding_limit", zone);
            print(text, "} %uD\n", zone->limit);
        }
    }

    metrics_head(text, "limit_sliding_window_seconds", "gauge",
                 "Length of the window.");

    for (i = 0; i < n; i++) {
        zone = reports[i].zone;

        metrics_zone(text, "limit_sliding_window_seconds", zone);
        print(text, "} %uL.%03uL\n", zone->policy.window_ms / 1000,
              zone->policy.window_ms % 1000);
    }
}

static void metrics_sources(Writer *text, ZoneReport *reports, ngx_uint_t n)
{
    ngx_uint_t i, j;

    if (!has_redis) {
        return;
    }

    metrics_head(text, "limit_sliding_decisions_total", "counter",
                 "Where requests of a zone in Redis "
                 "were decided.");

    for (i = 0; i < n; i++) {

        if (reports[i].zone->redis == NULL) {
            continue;
        }

        for (j = index_of(Source::kRedis); j <= index_of(Source::kFallback);
             j++) {
            metrics_zone(text, "limit_sliding_decisions_total",
                         reports[i].zone);
            print(text, ",source=\"%V\"} %uL\n", &source_names[j],
                  reports[i].counters.sources[j]);
        }
    }
}

/* In the order of metrics_table. */

static uint64_t metric_value(ZoneReport *report, ngx_uint_t i)
{
    Counters *counters;

    counters = &report->counters;

    switch (i) {

    case 0:
        return counters->requests[kCountErrors];

    case 1:
        return counters->slots.evicted;

    case 2:
        return counters->slots.refused;

    case 3:
        return report->keys;

    case 4:
        return report->slots;

    case 5:
        return counters->slots.used;

    case 6:
        return report->zone->memory.aside.own->held;

    default:
        return report->zone->size;
    }
}

} // namespace limit_sliding
