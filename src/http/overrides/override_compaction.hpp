/* Copyright (C) the limit_sliding authors */

/*
 * The file of a zone's overrides gets rid of lines that are of no use.
 *
 * The lines that are, with comments and whatever else the file has, are copied to
 * the end of the file, and from there to its beginning.  Who dies while it copies
 * to the end leaves lines that are ignored, and who dies while it copies to the
 * beginning a copy that is complete: the next one with the lock removes the former,
 * and moves the latter in.  This needs no other file, which workers could not open.
 */

#pragma once

#include "http/conf/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* True if more than half of the lines, and 64 KB, are of no use. */
bool needs_compaction(const ZoneConf &zone);

/* Compacts the file; the caller has no lock of it.  Returns false, and logs why, if
 * that failed. */
bool compact_limits(ngx_log_t *log, ZoneConf &zone);

} // namespace limit_sliding
