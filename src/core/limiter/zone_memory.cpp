/* Copyright (C) the limit_sliding authors */

#include "core/limiter/zone_memory.hpp"

#include <algorithm>

#include "core/table/zone.hpp"

namespace limit_sliding {

namespace {

/* Returns size / part, within bounds. */
size_t share_of(size_t size, size_t part, size_t least, size_t most) {
    return std::min(std::max(size / part, least), most);
}

size_t lines_of(size_t wanted) { return (wanted + kZoneAlign - 1) / kZoneAlign * kZoneAlign; }

} // namespace

size_t ZoneMemory::separate_bytes(size_t keys) {
    return lines_of(Overrides::bytes_for(keys)) + lines_of(sizeof(ZoneTimeline));
}

void ZoneMemory::init(void *memory, size_t size, unsigned mask, size_t overrides_max,
                      const uint8_t secret[kSecretBytes]) {
    /* Takes bytes from the memory, rounded up to whole lines. */
    auto carve = [&](size_t wanted) {
        void *part = static_cast<char *>(memory) + bytes;
        bytes += lines_of(wanted);
        return part;
    };

    auto make_cache = [&](size_t wanted) { return OverrideCache::init(carve(wanted), wanted); };

    constexpr size_t kCacheMin = OverrideCache::kBytesMin;

    bytes = 0;
    size -= separate_bytes(overrides_max);
    nstatistics = share_of(size, 8192, 1, 32);
    counters = static_cast<Statistics *>(carve(nstatistics * sizeof(Statistics)));

    /* The counter is in the rest of the last line. */
    times = static_cast<DecisionTimes *>(carve(sizeof(DecisionTimes) + sizeof(uint64_t)));
    usage_missing = reinterpret_cast<uint64_t *>(times + 1);

    size_t keys = share_of(size, 4096, 1, kOffendersMax);
    offenders = static_cast<Offenders *>(carve(Offenders::bytes_for(keys)));
    offenders->init(keys);

    redis_overrides
        = (mask & kRedis) != 0 ? make_cache(share_of(size, 16, kCacheMin, size)) : nullptr;

    /* a reload may bring variables to a zone without them */
    variable_overrides
        = make_cache((mask & kVariables) != 0 ? share_of(size, 24, kCacheMin, size)
                                              : share_of(size, 2048, kCacheMin, 512));

    overrides = static_cast<Overrides *>(carve(Overrides::bytes_for(overrides_max)));
    overrides->init(overrides_max);
    timeline = static_cast<ZoneTimeline *>(carve(sizeof(ZoneTimeline)));

    const size_t debts_room = share_of(size, 32, Debts::kBytesMin, size);
    debts = (mask & kDebts) != 0 ? Debts::init(carve(debts_room), debts_room) : nullptr;

    const size_t room = share_of(size, 8, Bans::kBytesMin, size);
    bans = (mask & kBans) != 0
               ? Bans::init(carve(room), room, (mask & kRedis) != 0 ? secret : nullptr)
               : nullptr;

    const size_t ledger_bytes = std::max(size / 2, Ledger::kBytesMin);
    ledger = (mask & kLedger) != 0 ? Ledger::init(carve(ledger_bytes), ledger_bytes) : nullptr;
}

} // namespace limit_sliding
