/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/zone.hpp"

#include "ngx/pool.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

ZoneConf *find_zone(const Zones &zones, std::string_view name)
{
    for (auto *zone : zones) {
        if (view(zone->name) == name) {
            return zone;
        }
    }

    return nullptr;
}

ZoneConf *get_zone(ngx_conf_t *cf, Zones *zones, const ngx_str_t &name)
{
    auto *zone = find_zone(*zones, view(name));
    if (zone != nullptr) {
        return zone;
    }

    zone = create<ZoneConf>(cf->pool);
    auto **added = zones->add(cf->pool);
    if (zone == nullptr || added == nullptr) {
        return nullptr;
    }

    zone->name = name;
    zone->place = place_of(cf);
    *added = zone;
    return zone;
}

} // namespace limit_sliding
