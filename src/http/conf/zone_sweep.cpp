/* Copyright (C) the limit_sliding authors */

#include "http/conf/zone_sweep.hpp"

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

    const uint64_t part = turn / swept.zones->size();

    ngx_log_debug1(NGX_LOG_DEBUG_EVENT, ngx_cycle->log, 0, "limit_sliding sweep of \"%V\"",
                   &zone.name);

    zone.memory.table->sweep(zone.policy, ngx_current_msec, zone.any_limit(), part, kSweepBytes);

    if (zone.memory.aside.debts != nullptr) {
        zone.memory.aside.debts->sweep(ngx_current_msec + zone.memory.table->offset_ms, part,
                                       kSweepBytes);
    }

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
