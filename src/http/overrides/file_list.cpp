/* Copyright (C) the limit_sliding authors */

#include "http/overrides/file_list.hpp"

#include "core/table/zone.hpp"
#include "http/overrides/file_load.hpp"
#include "http/overrides/limits_file.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Maximum lines of the table that a page reads: a few ms even if none is in a CPU cache. */
constexpr uint64_t kTableLines = 16 * 1024;

constexpr size_t kLineMax = 3 * OverrideLine::kKeyMax + 1024;

/* Reads the line of an entry into memory of the pool.  Returns an empty string if that fails.
 * Nearly all lines fit the first buffer, and hardly any is longer than the second. */
ngx_str_t read_text(ngx_fd_t fd, uint64_t at, ngx_pool_t *pool) {
    for (size_t size : {size_t{512}, size_t{8 * 1024}, kLineMax}) {
        auto *text = static_cast<char *>(ngx_pnalloc(pool, size));
        const ssize_t n = text != nullptr ? read_at(fd, text, size, at) : -1;
        if (n <= 0) { return {}; }

        const std::string_view read(text, static_cast<size_t>(n));
        const size_t end = read.find('\n');
        if (end != read.npos || read.size() < size) { return to_str(first(read, end)); }
    }

    return {};
}

} // namespace

bool list_overrides(const ZoneConf &zone, std::string_view after, size_t n, ngx_pool_t *pool,
                    Array<OverrideLine> &listed, uint64_t *place) {
    const auto &overrides = *zone.memory.aside.overrides;
    const auto now_s = static_cast<uint64_t>(ngx_time());
    uint64_t lines = kTableLines;
    Overrides::Entry entry;
    uint32_t tag;
    if (!after.empty()) { *place = overrides.place_after(zone.memory.table->hash(after)); }

    while (overrides.next(place, &lines, &entry, &tag)) {
        if (entry.until_s <= now_s) { continue; }

        const auto text = read_text(zone.override_file.fd, entry.at, pool);
        OverrideLine line;
        if (read_line(zone, reinterpret_cast<char *>(text.data), text.len, &line)
                != OverrideLine::Kind::kOverride
            || !Overrides::is_of(tag, line.hash) || line.own != entry.own) {
            continue;
        }

        if (listed.size() == n) {
            --*place; /* the next page begins with this override */
            return true;
        }

        line.until_s = entry.until_s;
        if (listed.add(pool, line) == nullptr) { return false; }
    }

    if (lines != 0) { *place = 0; }

    return true;
}

} // namespace limit_sliding
