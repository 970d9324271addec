/* Copyright (C) the limit_sliding authors */

#include "core/zone_memory.hpp"

#include <algorithm>

#include "core/zone.hpp"

namespace limit_sliding {

namespace {

/* Returns what a zone of that size can spare, and no more than is of use. */
size_t share_of(size_t size, size_t part, size_t least, size_t most) {
    return std::min(std::max(size / part, least), most);
}

} // namespace

void ZoneMemory::init(void *memory, size_t size, unsigned mask, size_t own_limits_max,
                      const uint8_t secret[kSecretBytes]) {
    /* Takes so many bytes, rounded up to whole lines. */
    auto carve = [&](size_t wanted) {
        void *part = static_cast<char *>(memory) + bytes;

        bytes += (wanted + kZoneAlign - 1) / kZoneAlign * kZoneAlign;

        return part;
    };

    auto make_cache = [&](size_t wanted) { return LimitCache::init(carve(wanted), wanted); };

    constexpr size_t kCacheMin = LimitCache::kBytesMin;

    bytes = 0;
    size -= std::min(size, OwnLimits::bytes_for(own_limits_max));
    ncounters = share_of(size, 8192, 1, 32);
    counters = static_cast<Counters *>(carve(ncounters * sizeof(Counters)));

    times = static_cast<DecisionTimes *>(carve(sizeof(DecisionTimes)));

    size_t keys = share_of(size, 4096, 1, kOffendersMax);
    offenders = static_cast<Offenders *>(carve(Offenders::bytes_for(keys)));
    offenders->init(keys);

    redis_limits = (mask & kRedis) != 0 ? make_cache(share_of(size, 16, kCacheMin, size)) : nullptr;

    /* a reload may bring variables to a zone that has had none */
    variable_limits = make_cache((mask & kVariables) != 0 ? share_of(size, 24, kCacheMin, size)
                                                          : share_of(size, 2048, kCacheMin, 512));

    own_limits = static_cast<OwnLimits *>(carve(OwnLimits::bytes_for(own_limits_max)));
    own_limits->init(own_limits_max);

    const size_t room = share_of(size, 8, Bans::kBytesMin, size);
    bans = (mask & kBans) != 0
               ? Bans::init(carve(room), room, (mask & kRedis) != 0 ? secret : nullptr)
               : nullptr;
}

} // namespace limit_sliding
