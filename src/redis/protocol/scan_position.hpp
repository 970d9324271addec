/* Copyright (C) the limit_sliding authors */

/* Scans of the keys of Redis, which may continue later and in another worker: the text of a
 * position, the pattern, and the COUNT of SCAN. */

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace limit_sliding {

/* The position of a scan.  A cursor is valid only on its server. */
struct ScanPosition {
    uint64_t node = 0;   /* Endpoint::id() of the server; 0: the first server */
    uint64_t cursor = 0; /* 0: the beginning */
};

/* The bytes of the longest text of a position. */
constexpr size_t kScanPositionBytes = 16 + 1 + 16;

/* Writes the position as a text that is safe in a URL.  Returns the number of its bytes,
 * kScanPositionBytes at most. */
size_t write_scan_position(const ScanPosition &place, char *text);

/* Reads a text of write_scan_position().  Returns false if it is invalid. */
bool read_scan_position(std::string_view text, ScanPosition *place);

/* Escapes a text so that it matches itself only in a pattern of Redis.  Returns the end; there
 * must be room for twice the bytes of the text. */
char *escape_glob(std::string_view text, char *to);

/* The bounds of COUNT.  A SCAN of so many keys blocks Redis for some tenths of a ms at most. */
constexpr size_t kScanMin = 10;
constexpr size_t kScanMax = 500;

/* Returns the COUNT that is likely to find `missing` keys, after `found` of `scanned` matched. */
size_t scan_count(size_t missing, size_t scanned, size_t found);

} // namespace limit_sliding
