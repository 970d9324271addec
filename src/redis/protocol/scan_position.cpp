/* Copyright (C) the limit_sliding authors */

#include "redis/protocol/scan_position.hpp"

#include <algorithm>

namespace limit_sliding {

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

/* Writes a number in hex without leading zeros, and returns the end. */
char *write_hex(uint64_t number, char *p) {
    unsigned bits = 60;
    while (bits != 0 && number >> bits == 0) {
        bits -= 4;
    }

    for (;; bits -= 4) {
        *p++ = kDigits[number >> bits & 15];
        if (bits == 0) { return p; }
    }
}

/* Reads a number of write_hex() and no other form, so that a position has one text. */
bool read_hex(std::string_view text, uint64_t *number) {
    if (text.empty() || text.size() > 16 || (text[0] == '0' && text.size() > 1)) { return false; }

    *number = 0;
    for (char c : text) {
        size_t digit = kDigits.find(c);
        if (digit == kDigits.npos) { return false; }

        *number = *number << 4 | digit;
    }
    return true;
}

} // namespace

size_t write_scan_position(const ScanPosition &place, char *text) {
    char *p = write_hex(place.node, text);
    *p++ = '-';
    return static_cast<size_t>(write_hex(place.cursor, p) - text);
}

bool read_scan_position(std::string_view text, ScanPosition *place) {
    size_t dash = text.find('-');
    if (dash == text.npos) { return false; }

    return read_hex({text.data(), dash}, &place->node) && place->node != 0
           && read_hex({text.data() + dash + 1, text.size() - dash - 1}, &place->cursor);
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
