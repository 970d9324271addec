/* Copyright (C) the limit_sliding authors */

/* Walks through the keys of Redis by SCAN, which goes on at a later time and in
 * another worker: the pattern, the number of keys at a time, and the place. */

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace limit_sliding {

/* Where a walk goes on.  A cursor means something to its server only. */
struct ScanCursor {
    uint64_t node = 0;   /* the server, by Endpoint::id(); 0: the first one */
    uint64_t cursor = 0; /* 0: from its beginning */
};

/* The longest text of a place. */
constexpr size_t kScanCursorBytes = 16 + 1 + 16;

/* Writes the place as a text that may stand in a URL, and returns its bytes.
 * There must be room for kScanCursorBytes. */
size_t write_scan_cursor(const ScanCursor &place, char *text);

/* Reads such a text.  Returns false if it is none. */
bool read_scan_cursor(std::string_view text, ScanCursor *place);

/* Writes a text such that a pattern of Redis matches nothing else by it, and
 * returns the end.  There must be room for twice its bytes. */
char *escape_glob(std::string_view text, char *to);

/* The bounds of COUNT.  Redis does nothing else while it looks at so many keys,
 * which takes it some tenths of a millisecond at most. */
constexpr size_t kScanMin = 10;
constexpr size_t kScanMax = 500;

/* Returns the COUNT that is likely to find as many keys as are missing, after
 * `found` of the `scanned` ones matched. */
size_t scan_count(size_t missing, size_t scanned, size_t found);

} // namespace limit_sliding
