/* Copyright (C) the limit_sliding authors */

#include "http/zone.hpp"

#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

const ngx_str_t algorithm_names[kAlgorithms]
    = {ngx_string("counter"), ngx_string("log"), ngx_string("fixed"), ngx_string("token_bucket"),
       ngx_string("leaky_bucket")};

ZoneConf *find_zone(const Zones &zones, std::string_view name) {
    for (auto *zone : zones) {
        if (view(zone->name) == name) { return zone; }
    }

    return nullptr;
}

ZoneConf *get_zone(ngx_conf_t *cf, Zones &zones, const ngx_str_t &name) {
    auto *zone = find_zone(zones, view(name));
    if (zone != nullptr) { return zone; }

    zone = create<ZoneConf>(cf->pool);
    if (zone == nullptr || zones.add(cf->pool, zone) == nullptr) { return nullptr; }

    zone->name = name;
    zone->where = file_line_of(cf);
    return zone;
}

} // namespace limit_sliding
