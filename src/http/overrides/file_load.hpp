/* Copyright (C) the limit_sliding authors */

/* Loads the file of a zone's overrides into its memory. */

#pragma once

#include "core/policy/override_line.hpp"
#include "http/conf/zone_conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Loads the zone's file at a start, or at a reload once NGINX has accepted the new configuration.
 * Logs wrong lines. */
void enter_overrides(ngx_log_t *log, ZoneConf &zone);

/* What a load repairs in the file after the death of a writer. */
enum class OverridesRepair {
    kNothing, /* "nginx -t" only reads */
    kCopies,  /* moves a complete copy (file_compaction.hpp) to the beginning, and cuts an
                 unfinished one off the end; leaves an unfinished line, which another program may
                 be writing */
    kAll      /* cuts off an unfinished line as well */
};

/* Brings the zone's table of overrides in step with the file.  The caller holds the lock.  Sets
 * *unplaced to the number of lines for which the table has no room.  Logs an error and
 * returns false if the file cannot be read or written. */
bool load_overrides(ngx_log_t *log, ZoneConf &zone, OverridesRepair repair,
                    uint64_t *unplaced = nullptr);

/* Parses a line and finds the hash of its key.  A key that should be an address, but is none, is
 * wrong. */
OverrideLine::Kind read_line(const ZoneConf &zone, char *text, size_t size, OverrideLine *line);

} // namespace limit_sliding
