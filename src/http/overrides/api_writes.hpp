/* Copyright (C) the limit_sliding authors */

/* API writes of overrides. */

#pragma once

#include "core/policy/override_line.hpp"
#include "http/conf/zone_conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* An API write, which sets or removes the override of a key by a line of the file.  The key of the
 * line is as in requests: an address as its bytes.  A write may outlive its request, so the write
 * and its texts have memory of their own. */
struct OverrideWrite : OverrideLine {
    enum class Result {
        kDone,     /* in force, and durable if the file has a name */
        kNoRoom,   /* "limits_max=" is reached */
        kDiskFull, /* or the file would exceed 4 GB */
        kReplaced, /* the path has another file, which needs a reload */
        kFailed    /* the log has the reason */
    };

    ZoneConf *zone; /* a zone in this node's memory */
    uint64_t at;    /* offset of the line in the file, set by write_override() */

    /* Posted once `result` is set, but never within write_override().  The write is not touched
     * after that.  The caller sets the handler. */
    ngx_event_t done;
    Result result;

    ngx_queue_t link; /* set by write_override() */
};

/* Prepares threads for API writes.  Returns false if there is no memory. */
bool prepare_writes(ngx_conf_t *cf, const Zones &zones);

/* Starts to check the file of a zone each second in this worker: processes with another memory,
 * such as the ones before a binary upgrade, may also write.  Called once. */
void watch_overrides(ZoneConf &zone);

/* Starts an API write.  The caller must keep it until `done` is posted, even if the client has
 * left: a write cannot be cancelled.  Writes to one key run in the order of the calls. */
void write_override(OverrideWrite &write);

} // namespace limit_sliding
