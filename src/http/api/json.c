
/*
 * Copyright (C) the limit_sliding authors
 */


/* GET of the API's root: everything, as JSON. */


#include "http/api/api.h"


static void ngx_http_limit_sliding_json_zone(
    ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_report_t *report);
static void ngx_http_limit_sliding_json_settings(
    ngx_http_limit_sliding_text_t *text, ngx_http_limit_sliding_zone_t *zone);
static void ngx_http_limit_sliding_json_counters(
    ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_report_t *report);
static void ngx_http_limit_sliding_json_top(
    ngx_http_limit_sliding_text_t *text, ngx_http_limit_sliding_zone_t *zone);


ngx_int_t
ngx_http_limit_sliding_api_json(ngx_http_request_t *r)
{
    ngx_uint_t                        i, n;
    ngx_time_t                       *tp;
    ngx_http_limit_sliding_text_t     text;
    ngx_http_limit_sliding_report_t  *reports;

    reports = ngx_http_limit_sliding_report(r, &n);
    if (reports == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    tp = ngx_timeofday();

    ngx_http_limit_sliding_text_init(&text, r->pool);

    ngx_http_limit_sliding_print(&text, "{\"version\":\"%s\","
                                 "\"nginx\":\"%s\","
                                 "\"time_ms\":%T%03M,\"zones\":{",
                                 NGX_HTTP_LIMIT_SLIDING_VERSION, NGINX_VERSION,
                                 tp->sec, tp->msec);

    for (i = 0; i < n; i++) {
        ngx_http_limit_sliding_print(&text, i ? ",\n" : "\n");
        ngx_http_limit_sliding_json_zone(&text, &reports[i]);
    }

    ngx_http_limit_sliding_print(&text, "},\n\"redis\":{");
    ngx_http_limit_sliding_json_redises(r, &text);
    ngx_http_limit_sliding_print(&text, "}}\n");

    return ngx_http_limit_sliding_api_send(r, NGX_HTTP_OK, "application/json",
                                           &text);
}


static void
ngx_http_limit_sliding_json_zone(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_report_t *report)
{
    ngx_http_limit_sliding_zone_t  *zone;

    zone = report->zone;

    ngx_http_limit_sliding_print_json(text, &zone->name);
    ngx_http_limit_sliding_print(text, ":{");

    ngx_http_limit_sliding_json_settings(text, zone);

    ngx_http_limit_sliding_print(text, ",\"bytes\":%uz,\"slots\":%uL,"
                                 "\"slots_used\":%uL,\"keys\":%uL,"
                                 "\"own_limits\":%uL",
                                 zone->shm_zone->shm.size, report->slots,
                                 report->counters.slots.used, report->keys,
                                 zone->aside.own->held);

    ngx_http_limit_sliding_json_counters(text, report);

    ngx_http_limit_sliding_print(text, ",\"top\":");
    ngx_http_limit_sliding_json_top(text, zone);

    ngx_http_limit_sliding_print(text, "}");
}


static void
ngx_http_limit_sliding_json_settings(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_zone_t *zone)
{
    limit_sliding_policy_t  *policy;

    policy = &zone->policy;

    ngx_http_limit_sliding_print(text, "\"key\":");
    ngx_http_limit_sliding_print_json(text, &zone->key.complex.value);

    ngx_http_limit_sliding_print(text, ",\"rate\":");
    ngx_http_limit_sliding_print_json(text, &zone->rate_text);

    if (zone->limit) {
        ngx_http_limit_sliding_print(text, ",\"limit\":%uD", zone->limit);

    } else {
        ngx_http_limit_sliding_print(text, ",\"limit\":null");
    }

    ngx_http_limit_sliding_print(text, ",\"window_ms\":%uL,"
                           "\"algorithm\":\"%V\",\"full\":\"%s\"",
                           policy->window_ms,
                           ngx_http_limit_sliding_algorithm(policy->algorithm),
                           policy->full == LIMIT_SLIDING_DENY ? "deny"
                                                              : "evict");

    if (policy->algorithm == LIMIT_SLIDING_COUNTER) {
        ngx_http_limit_sliding_print(text, ",\"precision\":%uD",
                                     ngx_max(policy->precision, 1));
    }

    if (policy->algorithm == LIMIT_SLIDING_LEAKY_BUCKET || policy->burst) {
        ngx_http_limit_sliding_print(text, ",\"burst\":%uD", policy->burst);
    }

    ngx_http_limit_sliding_print(text, ",\"redis\":");

    if (zone->redis) {
        ngx_http_limit_sliding_print_json(text, &zone->redis->name);

    } else {
        ngx_http_limit_sliding_print(text, "null");
    }
}


static void
ngx_http_limit_sliding_json_counters(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_report_t *report)
{
    ngx_uint_t                 i;
    limit_sliding_counters_t  *counters;

    counters = &report->counters;

    for (i = 0; i < LIMIT_SLIDING_NREQUESTS; i++) {
        ngx_http_limit_sliding_print(text, ",\"%s\":%uL",
                                     ngx_http_limit_sliding_count_names[i],
                                     counters->requests[i]);
    }

    ngx_http_limit_sliding_print(text, ",\"evicted\":%uL,\"refused\":%uL",
                                 counters->slots.evicted,
                                 counters->slots.refused);

    if (report->zone->redis == NULL) {
        return;
    }

    ngx_http_limit_sliding_print(text, ",\"sources\":{");

    for (i = NGX_HTTP_LIMIT_SLIDING_REDIS;
         i <= NGX_HTTP_LIMIT_SLIDING_FALLBACK;
         i++)
    {
        ngx_http_limit_sliding_print(text, "%s\"%V\":%uL",
                               i == NGX_HTTP_LIMIT_SLIDING_REDIS ? "" : ",",
                               &ngx_http_limit_sliding_sources[i],
                               counters->sources[i]);
    }

    ngx_http_limit_sliding_print(text, "}");

    ngx_http_limit_sliding_json_leases(text, report->zone);
}


/* Keys are what clients sent: any bytes. */

static void
ngx_http_limit_sliding_json_top(ngx_http_limit_sliding_text_t *text,
    ngx_http_limit_sliding_zone_t *zone)
{
    size_t                    i, n;
    ngx_str_t                 key;
    limit_sliding_offender_t  offenders[LIMIT_SLIDING_TOP_KEYS];

    if (!zone->top) {
        ngx_http_limit_sliding_print(text, "null");
        return;
    }

    n = limit_sliding_top_read(zone->aside.top, ngx_current_msec, offenders);

    ngx_http_limit_sliding_print(text, "[");

    for (i = 0; i < n; i++) {
        key.data = offenders[i].key;
        key.len = ngx_min(offenders[i].bytes, LIMIT_SLIDING_TOP_BYTES);

        ngx_http_limit_sliding_print(text, "%s{", i ? "," : "");
        ngx_http_limit_sliding_print_key(text, zone, &key);
        ngx_http_limit_sliding_print(text, ",\"truncated\":%s,"
                           "\"rejected\":%uL}",
                           key.len < offenders[i].bytes ? "true" : "false",
                           offenders[i].rejected);
    }

    ngx_http_limit_sliding_print(text, "]");
}
