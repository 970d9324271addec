/* Copyright (C) the limit_sliding authors */

#include "http/conf/zone_conf.hpp"
#include "http/conf/zone_worker.hpp"

#include "ngx/event.hpp"

namespace limit_sliding {

namespace {

constexpr ngx_msec_t kSweepMs = 60 * 1000;
constexpr uint64_t kSweepBytes = 1 << 20;

struct Sweep {
    const Zones *zones;
    ngx_event_t timer;

    /* Returns the ms between sweeps.  The zones take turns: a sweep reads one megabyte. */
    ngx_msec_t turn_ms() const { return 1 + kSweepMs / zones->size(); }
};

Sweep sweep;

/* Sweeps the part that the time determines, so a new worker continues the last one's work. */
void sweep_next(Sweep &swept) {
    const ngx_msec_t turn = ngx_current_msec / swept.turn_ms();
    const ZoneConf &zone = *(*swept.zones)[turn % swept.zones->size()];

    Zone &table = *zone.memory.table;
    Debts *debts = zone.memory.aside.debts;

    const uint64_t part = turn / swept.zones->size();

    [[maybe_unused]] const uint64_t states
        = table.sweep(zone.policy, ngx_current_msec, zone.any_limit(), part, kSweepBytes);

    [[maybe_unused]] const uint64_t paid
        = debts != nullptr ? debts->sweep(ngx_current_msec + table.offset_ms, part, kSweepBytes)
                           : 0;

    ngx_log_debug3(NGX_LOG_DEBUG_EVENT, ngx_cycle->log, 0,
                   "limit_sliding sweep of \"%V\" has withdrawn %uL states and %uL debts",
                   &zone.name, states, paid);

    ngx_add_timer(&swept.timer, swept.turn_ms());
}

} // namespace

void start_sweep(const Zones &zones) {
    sweep.zones = &zones;
    init_event<sweep_next>(sweep.timer, sweep);
    sweep.timer.cancelable = 1; /* an exiting worker does not wait for the timer */
    ngx_add_timer(&sweep.timer, sweep.turn_ms());
}

} // namespace limit_sliding
