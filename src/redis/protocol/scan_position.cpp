/* Copyright (C) the limit_sliding authors */

#include "redis/protocol/scan_position.hpp"

#include <algorithm>
#include <charconv>

namespace limit_sliding {

size_t write_scan_position(const ScanPosition &place, char *text) {
    char *end = text + kScanPositionBytes;
    char *p = std::to_chars(text, end, place.node, 16).ptr;
    *p++ = '-';
    return static_cast<size_t>(std::to_chars(p, end, place.cursor, 16).ptr - text);
}

bool read_scan_position(std::string_view text, ScanPosition *place) {
    const char *end = text.data() + text.size();
    const char *dash = std::from_chars(text.data(), end, place->node, 16).ptr;
    if (dash == end) { return false; }

    (void)std::from_chars(dash + 1, end, place->cursor, 16);

    /* a position has one text */
    char same[kScanPositionBytes];
    return place->node != 0 && text == std::string_view(same, write_scan_position(*place, same));
}

char *escape_glob(std::string_view text, char *to) {
    constexpr std::string_view kSpecial = "*?[]\\";
    for (char c : text) {
        if (kSpecial.find(c) != kSpecial.npos) { *to++ = '\\'; }

        *to++ = c;
    }
    return to;
}

size_t scan_count(size_t missing, size_t scanned, size_t found) {
    size_t count = missing * scanned / std::max<size_t>(found, 1);
    return std::clamp(std::max(missing, count), kScanMin, kScanMax);
}

} // namespace limit_sliding
