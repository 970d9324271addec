/* Copyright (C) the limit_sliding authors */

#include "http/conf/zone_conf.hpp"
#include "http/conf/zone_worker.hpp"

#include <algorithm>

#include "core/holds/hold.hpp"
#include "ngx/event.hpp"
#include "ngx/seats.hpp"
#include "redis/shares/unit_holder.hpp"

namespace limit_sliding {

namespace {

/* The interval of searches for workers that have died, in ms. */
constexpr ngx_msec_t kSearchMs = 250;

struct Search {
    const Zones *zones;
    ngx_int_t seat; /* of this worker */
    ngx_event_t timer;
};

Search search;

/* Calls visit(holdings) for the zones with inflight=. */
template <class Visit>
void for_each_holdings(const Zones &zones, const Visit &visit) {
    for (auto *zone : zones) {
        if (zone->policy.is_in_flight()) { visit(zone->worker.holdings); }
    }
}

/* Calls visit(redis) for the zones with inflight= in Redis. */
template <class Visit>
void for_each_redis(const Zones &zones, const Visit &visit) {
    if constexpr (kHasRedis) {
        for (auto *zone : zones) {
            if (zone->policy.is_in_flight() && zone->is_remote()) { visit(*zone->remote.redis); }
        }
    }
}

/* Gives back the units of a seat that this worker has entered. */
void recover(const Zones &zones, uint32_t seat) {
    for_each_holdings(zones, [=](const Holdings &holdings) { holdings.recover(seat); });
}

/* Deletes the heartbeats of dead workers that had this seat. */
void bury(const Zones &zones, uint32_t seat) {
    for_each_redis(zones, [=](Redis &redis) { bury_holder(redis, seat); });
}

/* Gives back the units of workers that have died.  A new worker gives back only those of the seat
 * that it takes. */
void search_dead(Search &searched) {
    for (uint32_t seat = 0; seat < Ledger::kSeats; seat++) {
        bool is_used = false;
        for_each_holdings(*searched.zones, [&](const Holdings &holdings) {
            is_used |= holdings.ledger().is_used(seat);
        });
        for_each_redis(*searched.zones, [&](const Redis &redis) {
            is_used |= load(&redis.shared->holders[seat]) != 0;
        });

        if (!is_used || seat == searched.seat || !enter_seat(seat)) { continue; }

        recover(*searched.zones, seat);
        bury(*searched.zones, seat);
        leave_seat(seat);
    }

    bury(*searched.zones, static_cast<uint32_t>(searched.seat));

    for_each_holdings(*searched.zones, [](Holdings &holdings) { holdings.tidy(); });
    ngx_add_timer(&searched.timer, kSearchMs);
}

} // namespace

bool enter_holds(ngx_log_t *log, const Zones &zones) {
    if (std::none_of(zones.begin(), zones.end(),
                     [](auto *zone) { return zone->policy.is_in_flight(); })) {
        return true;
    }

    search.zones = &zones;
    search.seat = take_seat(Ledger::kSeats);
    if (search.seat == NGX_ERROR) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "limit_sliding cannot lock a number for this worker");
        return false;
    }

    const auto seat = static_cast<uint32_t>(search.seat);
    for (auto *zone : zones) {
        if (!zone->policy.is_in_flight()) { continue; }

        zone->worker.holdings = Holdings(zone->memory.table, zone->memory.aside.ledger, seat);
    }

    for_each_redis(zones, [=](Redis &redis) {
        redis.client.seat = seat;
        /* Redis hears of this worker before requests do */
        (void)get_holder(redis);
    });
    recover(zones, seat);
    init_event<search_dead>(search.timer, search);
    search.timer.cancelable = 1; /* an exiting worker does not wait for the timer */
    ngx_add_timer(&search.timer, kSearchMs);
    return true;
}

} // namespace limit_sliding
