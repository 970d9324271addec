
/*
 * Copyright (C) the limit_sliding authors
 */


#include "http/api/api.h"


/*
 * Of all zones' slots so many bytes are looked at, to tell how many keys live:
 * less than a millisecond's work.
 */

#define NGX_HTTP_LIMIT_SLIDING_WALK  (1024 * 1024)


char  *ngx_http_limit_sliding_count_names[] = {
    "passed",
    "delayed",
    "rejected",
    "delayed_dry_run",
    "rejected_dry_run",
    "errors"
};


static void ngx_http_limit_sliding_report_zone(
    ngx_http_limit_sliding_zone_t *zone, uint64_t bytes,
    ngx_http_limit_sliding_report_t *report);


/* A report of every zone; NULL: no memory. */

ngx_http_limit_sliding_report_t *
ngx_http_limit_sliding_report(ngx_http_request_t *r, ngx_uint_t *n)
{
    ngx_uint_t                            i;
    ngx_http_limit_sliding_zone_t       **zones;
    ngx_http_limit_sliding_report_t      *reports;
    ngx_http_limit_sliding_main_conf_t   *lsmcf;

    lsmcf = ngx_http_get_module_main_conf(r, ngx_http_limit_sliding_module);

    zones = lsmcf->zones.elts;
    *n = lsmcf->zones.nelts;

    /* one more, as there may be none */

    reports = ngx_palloc(r->pool,
                         (*n + 1) * sizeof(ngx_http_limit_sliding_report_t));
    if (reports == NULL) {
        return NULL;
    }

    for (i = 0; i < *n; i++) {
        ngx_http_limit_sliding_report_zone(zones[i],
                                           NGX_HTTP_LIMIT_SLIDING_WALK / *n,
                                           &reports[i]);
    }

    return reports;
}


static void
ngx_http_limit_sliding_report_zone(ngx_http_limit_sliding_zone_t *zone,
    uint64_t bytes, ngx_http_limit_sliding_report_t *report)
{
    limit_sliding_zone_stats_t  stats;

    limit_sliding_zone_stats(zone->zone, &stats);

    limit_sliding_counters_sum(zone->aside.counters, zone->aside.ncounters,
                               &report->counters);

    report->zone = zone;
    report->slots = stats.slots;
    report->keys = limit_sliding_zone_keys(zone->zone, &zone->policy,
                                           ngx_current_msec,
                                           ngx_max(zone->limit, 1),
                                           report->counters.slots.used, bytes);
}
