/* Copyright (C) the limit_sliding authors */

/* Removes useless lines from the file of a zone's overrides.  All other lines, with comments and
 * unknown text, are copied to the end of the file, and then from there to its beginning.  If the
 * process dies during the first copy, readers ignore the copy, and the next holder of the lock
 * removes it.  If the process dies during the second copy, the next holder repeats that copy.
 * This method needs no other file, which workers could not open. */

#pragma once

#include "http/conf/zone_conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Returns true if more than half of the lines, and at least 64 KB, are useless. */
bool needs_compaction(const ZoneConf &zone);

/* Compacts the file.  The caller must not hold its lock.  Returns false if that fails. */
bool compact_overrides(ngx_log_t *log, ZoneConf &zone);

} // namespace limit_sliding
