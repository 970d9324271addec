/* Copyright (C) the limit_sliding authors */

/* What the file of a zone's overrides says comes into its memory. */

#pragma once

#include "core/policy/override_line.hpp"
#include "http/conf/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Reads the zone's file at a start or reload that is certain.  Logs lines that are
 * wrong. */
void enter_limits(ngx_log_t *log, ZoneConf &zone);

/* Makes the memory what the file says; the caller has the lock.  Unless it only tests,
 * it first ends what a process that died has left: an unfinished line, or copy.
 * Returns false, and logs why, if the file cannot be read or written.  `unplaced`:
 * so many lines are in the file, but for lack of room not in the memory. */
bool load_limits(ngx_log_t *log, ZoneConf &zone, bool tests, uint64_t *unplaced);

/* Finds the hash of the key of a line; false: it is no address in a zone of these. */
bool hash_of_line(const ZoneConf &zone, const LimitLine &line, uint64_t *hash);

} // namespace limit_sliding
