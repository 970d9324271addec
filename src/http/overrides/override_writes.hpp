/* Copyright (C) the limit_sliding authors */

/* Orders of overrides, by the API. */

#pragma once

#include <string_view>

#include "core/policy/override.hpp"
#include "http/conf/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* An order to give a key a limit of its own, or to take it away.  It may outlive the
 * request that it came with, so it has memory of its own, as have its texts. */
struct LimitWrite {
    enum class Result {
        kDone,     /* in force, and durable if the zone has a file */
        kNoRoom,   /* "limits_max=" keys have overrides */
        kDiskFull, /* or the file would be larger than 4 GB */
        kReplaced, /* the file at the path is another one, and needs a reload */
        kFailed    /* the log tells why */
    };

    ZoneConf *zone;       /* one of this node's memory */
    std::string_view key; /* as requests have it: an address as its bytes */
    uint64_t hash;        /* of the key, by Zone::hash() */
    Override own;         /* none set: it is taken away */
    ngx_str_t text;       /* of the limit, as given */
    uint64_t until_s;     /* UNIX time when the limit ends; 0: it does not */

    /* Posted once the result is set, which is never within order_limit().  Nothing
     * of the order is touched after that.  The caller sets its handler. */
    ngx_event_t done;
    Result result;

    ngx_queue_t link; /* set by order_limit() */
};

/* Sees to it that workers can carry out orders, if the API gives any. */
bool prepare_orders(ngx_conf_t *cf, const Zones &zones);

/* Has this worker look at the file of a zone each second: processes of another memory, as
 * those before a binary upgrade, may carry out orders as well.  Call it once. */
void watch_limits(ZoneConf &zone);

/* Begins with an order of a worker.  The caller must keep it until `done` is posted,
 * even if nobody waits for it any more: an order cannot be taken back.  Those of a
 * key are carried out in the order of these calls. */
void order_limit(LimitWrite &order);

} // namespace limit_sliding
