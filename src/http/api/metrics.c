
/*
 * Copyright (C) the limit_sliding authors
 */


/* GET of "metrics": numbers for Prometheus; no key is ever among them. */


#include "http/api/api.h"


static void ngx_http_limit_sliding_metrics_zone(
    ngx_http_limit_sliding_text_t *text, char *name,
    ngx_http_limit_sliding_zone_t *zone);
static void ngx_http_limit_sliding_metrics_requests(
    ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_report_t *reports, ngx_uint_t n);
static void ngx_http_limit_sliding_metrics_settings(
    ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_report_t *reports, ngx_uint_t n);
static void ngx_http_limit_sliding_metrics_sources(
    ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_report_t *reports, ngx_uint_t n);
static uint64_t ngx_http_limit_sliding_metric_value(
    ngx_http_limit_sliding_report_t *report, ngx_uint_t i);


/* Those of a zone that are one number each. */

static struct {
    char  *name;
    char  *type;
    char  *help;
} ngx_http_limit_sliding_metrics[] = {

    { "limit_sliding_errors_total", "counter",
      "Keys, rates and costs of requests that could not be used." },

    { "limit_sliding_evicted_total", "counter",
      "Unexpired states given up for new keys." },

    { "limit_sliding_refused_total", "counter",
      "New keys refused because the zone was full." },

    { "limit_sliding_keys", "gauge",
      "Unexpired states, estimated in a large zone." },

    { "limit_sliding_slots", "gauge",
      "States that the zone has room for." },

    { "limit_sliding_slots_used", "gauge",
      "Slots that have ever been used." },

    { "limit_sliding_own_limits", "gauge",
      "Keys with a limit of their own." },

    { "limit_sliding_zone_bytes", "gauge",
      "Size of the zone." }
};


ngx_int_t
ngx_http_limit_sliding_api_metrics(ngx_http_request_t *r)
{
    ngx_uint_t                        i, j, n;
    ngx_http_limit_sliding_text_t     text;
    ngx_http_limit_sliding_report_t  *reports;

    reports = ngx_http_limit_sliding_report(r, &n);
    if (reports == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_limit_sliding_text_init(&text, r->pool);

    ngx_http_limit_sliding_metrics_head(&text, "limit_sliding_build_info",
                                        "gauge", "Versions, as labels.");
    ngx_http_limit_sliding_print(&text, "limit_sliding_build_info"
                                 "{version=\"%s\",nginx=\"%s\"} 1\n",
                                 NGX_HTTP_LIMIT_SLIDING_VERSION,
                                 NGINX_VERSION);

    ngx_http_limit_sliding_metrics_requests(&text, reports, n);

    for (i = 0; i < sizeof(ngx_http_limit_sliding_metrics)
                    / sizeof(ngx_http_limit_sliding_metrics[0]); i++)
    {
        ngx_http_limit_sliding_metrics_head(&text,
                                        ngx_http_limit_sliding_metrics[i].name,
                                        ngx_http_limit_sliding_metrics[i].type,
                                        ngx_http_limit_sliding_metrics[i].help);

        for (j = 0; j < n; j++) {
            ngx_http_limit_sliding_metrics_zone(&text,
                                        ngx_http_limit_sliding_metrics[i].name,
                                        reports[j].zone);
            ngx_http_limit_sliding_print(&text, "} %uL\n",
                       ngx_http_limit_sliding_metric_value(&reports[j], i));
        }
    }

    ngx_http_limit_sliding_metrics_settings(&text, reports, n);
    ngx_http_limit_sliding_metrics_sources(&text, reports, n);
    ngx_http_limit_sliding_metrics_redises(r, &text);

    return ngx_http_limit_sliding_api_send(r, NGX_HTTP_OK,
                                           "text/plain; version=0.0.4", &text);
}


void
ngx_http_limit_sliding_metrics_head(ngx_http_limit_sliding_text_t *text,
    char *name, char *type, char *help)
{
    ngx_http_limit_sliding_print(text, "# HELP %s %s\n# TYPE %s %s\n",
                                 name, help, name, type);
}


/* The beginning of a sample; the caller may add labels, and closes them. */

static void
ngx_http_limit_sliding_metrics_zone(ngx_http_limit_sliding_text_t *text,
    char *name, ngx_http_limit_sliding_zone_t *zone)
{
    ngx_http_limit_sliding_print(text, "%s{zone=", name);
    ngx_http_limit_sliding_print_label(text, &zone->name);
}


static void
ngx_http_limit_sliding_metrics_requests(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_report_t *reports, ngx_uint_t n)
{
    ngx_uint_t  i, j;

    ngx_http_limit_sliding_metrics_head(text, "limit_sliding_requests_total",
                                        "counter",
                                        "Requests that the zone decided.");

    for (i = 0; i < n; i++) {
        for (j = 0; j < LIMIT_SLIDING_COUNT_ERRORS; j++) {
            ngx_http_limit_sliding_metrics_zone(text,
                                                "limit_sliding_requests_total",
                                                reports[i].zone);
            ngx_http_limit_sliding_print(text, ",status=\"%s\"} %uL\n",
                                         ngx_http_limit_sliding_count_names[j],
                                         reports[i].counters.requests[j]);
        }
    }
}


static void
ngx_http_limit_sliding_metrics_settings(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_report_t *reports, ngx_uint_t n)
{
    ngx_uint_t                      i;
    ngx_http_limit_sliding_zone_t  *zone;

    ngx_http_limit_sliding_metrics_head(text, "limit_sliding_limit", "gauge",
                     "Requests a window, where that is the same for all keys.");

    for (i = 0; i < n; i++) {
        zone = reports[i].zone;

        if (zone->limit) {
            ngx_http_limit_sliding_metrics_zone(text, "limit_sliding_limit",
                                                zone);
            ngx_http_limit_sliding_print(text, "} %uD\n", zone->limit);
        }
    }

    ngx_http_limit_sliding_metrics_head(text, "limit_sliding_window_seconds",
                                        "gauge", "Length of the window.");

    for (i = 0; i < n; i++) {
        zone = reports[i].zone;

        ngx_http_limit_sliding_metrics_zone(text,
                                            "limit_sliding_window_seconds",
                                            zone);
        ngx_http_limit_sliding_print(text, "} %uL.%03uL\n",
                                     zone->policy.window_ms / 1000,
                                     zone->policy.window_ms % 1000);
    }
}


static void
ngx_http_limit_sliding_metrics_sources(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_report_t *reports, ngx_uint_t n)
{
    ngx_uint_t  i, j;

    if (!ngx_http_limit_sliding_has_redis) {
        return;
    }

    ngx_http_limit_sliding_metrics_head(text, "limit_sliding_decisions_total",
                         "counter", "Where requests of a zone in Redis "
                         "were decided.");

    for (i = 0; i < n; i++) {

        if (reports[i].zone->redis == NULL) {
            continue;
        }

        for (j = NGX_HTTP_LIMIT_SLIDING_REDIS;
             j <= NGX_HTTP_LIMIT_SLIDING_FALLBACK;
             j++)
        {
            ngx_http_limit_sliding_metrics_zone(text,
                                               "limit_sliding_decisions_total",
                                               reports[i].zone);
            ngx_http_limit_sliding_print(text, ",source=\"%V\"} %uL\n",
                                         &ngx_http_limit_sliding_sources[j],
                                         reports[i].counters.sources[j]);
        }
    }
}


/* In the order of ngx_http_limit_sliding_metrics. */

static uint64_t
ngx_http_limit_sliding_metric_value(ngx_http_limit_sliding_report_t *report,
    ngx_uint_t i)
{
    limit_sliding_counters_t  *counters;

    counters = &report->counters;

    switch (i) {

    case 0:
        return counters->requests[LIMIT_SLIDING_COUNT_ERRORS];

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
        return report->zone->aside.own->held;

    default:
        return report->zone->shm_zone->shm.size;
    }
}
