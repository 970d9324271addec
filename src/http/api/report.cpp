
/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/api/report.hpp"

#include "http/configuration.hpp"
#include "http/module.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

/*
 * Of all zones' slots so many bytes are looked at, to tell how many keys live:
 * less than a millisecond's work.
 */

constexpr auto kWalk = (1024 * 1024);

char *count_names[] = {"passed",          "delayed",          "rejected",
                       "delayed_dry_run", "rejected_dry_run", "errors"};

static void report_zone(ZoneConf *zone, uint64_t bytes, ZoneReport *report);

/* A report of every zone; NULL: no memory. */

ZoneReport *report_zones(ngx_http_request_t *r, ngx_uint_t *n)
{
    ngx_uint_t i;
    ZoneConf **zones;
    ZoneReport *reports;
    MainConf *lsmcf;

    lsmcf = ngx_http_get_module_main_conf(r, ngx_http_limit_sliding_module);

    zones = lsmcf->zones.begin();
    *n = lsmcf->zones.size();

    /* one more, as there may be none */

    reports = ngx_palloc(r->pool, (*n + 1) * sizeof(ZoneReport));
    if (reports == NULL) {
        return NULL;
    }

    for (i = 0; i < *n; i++) {
        report_zone(zones[i], kWalk / *n, &reports[i]);
    }

    return reports;
}

static void report_zone(ZoneConf *zone, uint64_t bytes, ZoneReport *report)
{
    ZoneStats stats;

    limit_sliding::zone_stats(zone->memory.table, &stats);

    limit_sliding::counters_sum(zone->memory.aside.counters,
                                zone->memory.aside.ncounters,
                                &report->counters);

    report->zone = zone;
    report->slots = stats.slots;
    report->keys = limit_sliding::zone_keys(
        zone->memory.table, &zone->policy, ngx_current_msec,
        ngx_max(zone->limit, 1), report->counters.slots.used, bytes);
}

} // namespace limit_sliding
