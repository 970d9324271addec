/* Copyright (C) the limit_sliding authors */

#include "http/overrides/override_list.hpp"

#include <cstring>

#include "core/table/zone.hpp"
#include "http/overrides/override_file.hpp"
#include "http/overrides/override_load.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Nearly all lines fit the first buffer, and hardly any is longer than the second. */
constexpr size_t kFirstBytes = 512;
constexpr size_t kMoreBytes = 8 * 1024;
/* Maximum lines of the table that a page reads: a few ms even if none is in a CPU cache. */
constexpr uint64_t kTableLines = 16 * 1024;

constexpr size_t kLineMax = 3 * LimitLine::kKeyMax + 1024;

/* Reads the line of an entry into memory of the pool.  Returns an empty string if that fails. */
ngx_str_t read_line(ngx_fd_t fd, uint64_t at, ngx_pool_t *pool) {
    for (size_t size : {kFirstBytes, kMoreBytes, kLineMax}) {
        auto *text = static_cast<u_char *>(ngx_pnalloc(pool, size));
        const ssize_t n
            = text != nullptr ? read_at(fd, reinterpret_cast<char *>(text), size, at) : -1;
        if (n <= 0) { return {}; }

        auto *end = static_cast<u_char *>(std::memchr(text, '\n', static_cast<size_t>(n)));
        if (end != nullptr) { return {static_cast<size_t>(end - text), text}; }

        if (static_cast<size_t>(n) < size) { return {static_cast<size_t>(n), text}; }
    }

    return {};
}

} // namespace

bool list_limits(const ZoneConf &zone, std::string_view after, size_t n, ngx_pool_t *pool,
                 Array<LimitLine> &listed, uint64_t *place) {
    const auto &overrides = *zone.memory.aside.overrides;
    const auto now_s = static_cast<uint64_t>(ngx_time());
    uint64_t lines = kTableLines;
    Overrides::Entry entry;
    uint32_t tag;
    if (!after.empty()) { *place = overrides.place_after(zone.memory.table->hash(after)); }

    while (listed.size() < n && overrides.next(place, &lines, &entry, &tag)) {
        if (entry.until_s <= now_s) { continue; }

        const auto text = read_line(zone.limits.fd, entry.at, pool);
        LimitLine line;
        uint64_t hash;
        if (line.parse(reinterpret_cast<char *>(text.data), text.len, zone.policy, zone.limit_max())
                != LimitLine::Kind::kLimit
            || !hash_of_line(zone, line, &hash) || !Overrides::is_of(tag, hash)
            || line.own != entry.own) {
            continue;
        }

        line.until_s = entry.until_s;
        if (listed.add(pool, line) == nullptr) { return false; }
    }

    if (listed.size() < n && lines != 0) { *place = 0; }

    return true;
}

} // namespace limit_sliding
