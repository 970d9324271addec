/* Copyright (C) the limit_sliding authors */

/*
 * The list of the keys of a zone that have limits of their own in Redis.
 *
 * A page of it comes by SCAN for the names of the limits, and GET and PTTL for
 * each: all of it by the connections that requests are decided by, a bounded
 * part at a time, after the asks of requests.  In a cluster one master follows
 * the other, in the order of their ids.
 */

#pragma once

#include "redis/calls/remote_claim.hpp"
#include "redis/shared/scan_cursor.hpp"

namespace limit_sliding {

/* A key with a limit of its own, in memory of its page. */
struct ScannedLimit {
    ngx_str_t key;   /* as it is in Redis: the text, or its digest */
    ngx_str_t limit; /* the value; data is nullptr if it is no string */
    int64_t ttl_ms;  /* negative: it does not expire */
    bool is_gone;    /* it was removed while the page was made */
};

enum class ScanResult {
    kWaits = 0,
    kDone,
    kAway,    /* Redis does not answer */
    kRefused, /* it has answered with an error, which was logged */
    kMoved    /* it has no such server any more, or another master */
};

struct ScanPage {
    ScanResult result;
    Array<ScannedLimit> limits;
    ScanCursor next; /* of the next page, */
    bool has_next;   /* unless there is none */
};

/* Begins a page of about so many limits, from a place on.  The event is posted
 * once the page has its result.  Returns nullptr if Redis is known not to
 * answer, or there is no memory; else leave_scan() frees the page. */
ScanPage *scan_limits(RemoteZone &zone, const ScanCursor &from, size_t most, ngx_event_t *done);

/* To be called once for a page, complete or not.  The event is not posted any
 * more. */
void leave_scan(ScanPage *page);

} // namespace limit_sliding
