
/*
 * Copyright (C) the limit_sliding authors
 */

/* GET of the API's root: everything, as JSON. */

#include "http/api/json.hpp"

#include "http/api/key_text.hpp"
#include "http/api/redis_report.hpp"
#include "http/api/report.hpp"
#include "http/api/response.hpp"
#include "http/api/writer.hpp"
#include "http/variables.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static void json_zone(Writer *text, ZoneReport *report);
static void json_settings(Writer *text, ZoneConf *zone);
static void json_counters(Writer *text, ZoneReport *report);
static void json_top(Writer *text, ZoneConf *zone);

ngx_int_t api_json(ngx_http_request_t *r)
{
    ngx_uint_t i, n;
    ngx_time_t *tp;
    Writer text;
    ZoneReport *reports;

    reports = report_zones(r, &n);
    if (reports == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    tp = ngx_timeofday();

    text_init(&text, r->pool);

    print(&text,
          "{\"version\":\"%s\","
          "\"nginx\":\"%s\","
          "\"time_ms\":%T%03M,\"zones\":{",
          kVersion, NGINX_VERSION, tp->sec, tp->msec);

    for (i = 0; i < n; i++) {
        print(&text, i ? ",\n" : "\n");
        json_zone(&text, &reports[i]);
    }

    print(&text, "},\n\"redis\":{");
    json_redises(r, &text);
    print(&text, "}}\n");

    return api_send(r, NGX_HTTP_OK, "application/json", &text);
}

static void json_zone(Writer *text, ZoneReport *report)
{
    ZoneConf *zone;

    zone = report->zone;

    print_json(text, &zone->name);
    print(text, ":{");

    json_settings(text, zone);

    print(text,
          ",\"bytes\":%uz,\"slots\":%uL,"
          "\"slots_used\":%uL,\"keys\":%uL,"
          "\"own_limits\":%uL",
          zone->size, report->slots, report->counters.slots.used, report->keys,
          zone->memory.aside.own->held);

    json_counters(text, report);

    print(text, ",\"top\":");
    json_top(text, zone);

    print(text, "}");
}

static void json_settings(Writer *text, ZoneConf *zone)
{
    Policy *policy;

    policy = &zone->policy;

    print(text, "\"key\":");
    print_json(text, &zone->key.complex.value);

    print(text, ",\"rate\":");
    print_json(text, &zone->rate_text);

    if (zone->limit) {
        print(text, ",\"limit\":%uD", zone->limit);

    } else {
        print(text, ",\"limit\":null");
    }

    print(text,
          ",\"window_ms\":%uL,"
          "\"algorithm\":\"%V\",\"full\":\"%s\"",
          policy->window_ms, &algorithm_names[index_of(policy->algorithm)],
          policy->full == WhenFull::kDeny ? "deny" : "evict");

    if (policy->algorithm == Algorithm::kCounter) {
        print(text, ",\"precision\":%uD", ngx_max(policy->precision, 1));
    }

    if (policy->algorithm == Algorithm::kLeakyBucket || policy->burst) {
        print(text, ",\"burst\":%uD", policy->burst);
    }

    print(text, ",\"redis\":");

    if (zone->redis) {
        print_json(text, &zone->redis->settings.name);

    } else {
        print(text, "null");
    }
}

static void json_counters(Writer *text, ZoneReport *report)
{
    ngx_uint_t i;
    Counters *counters;

    counters = &report->counters;

    for (i = 0; i < kNrequests; i++) {
        print(text, ",\"%s\":%uL", count_names[i], counters->requests[i]);
    }

    print(text, ",\"evicted\":%uL,\"refused\":%uL", counters->slots.evicted,
          counters->slots.refused);

    if (report->zone->redis == NULL) {
        return;
    }

    print(text, ",\"sources\":{");

    for (i = index_of(Source::kRedis); i <= index_of(Source::kFallback); i++) {
        print(text, "%s\"%V\":%uL", i == index_of(Source::kRedis) ? "" : ",",
              &source_names[i], counters->sources[i]);
    }

    print(text, "}");

    json_leases(text, report->zone);
}

/* Keys are what clients sent: any bytes. */

static void json_top(Writer *text, ZoneConf *zone)
{
    size_t i, n;
    ngx_str_t key;
    Offender offenders[kTopKeys];

    if (!zone->top) {
        print(text, "null");
        return;
    }

    n = limit_sliding::top_read(zone->memory.aside.top, ngx_current_msec,
                                offenders);

    print(text, "[");

    for (i = 0; i < n; i++) {
        key.data = offenders[i].key;
        key.len = ngx_min(offenders[i].bytes, kTopBytes);

        print(text, "%s{", i ? "," : "");
        print_key(text, zone, &key);
        print(text,
              ",\"truncated\":%s,"
              "\"rejected\":%uL}",
              key.len < offenders[i].bytes ? "true" : "false",
              offenders[i].rejected);
    }

    print(text, "]");
}

} // namespace limit_sliding
