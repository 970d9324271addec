/* Copyright (C) the limit_sliding authors */

/*
 * The list of the keys of a zone that have overrides in Redis.
 *
 * SCAN returns the names of the overrides of a page, and GET and PTTL the values, over the
 * connections that decide requests, in bounded parts after the asks of requests.  In a cluster,
 * masters are scanned in the order of their ids.
 */

#pragma once

#include "redis/errands/remote_claim.hpp"
#include "redis/protocol/scan_position.hpp"

namespace limit_sliding {

/* A key with an override, in the memory of its page. */
struct ScannedOverride {
    ngx_str_t key;  /* the key as in Redis: the text, or its digest */
    ngx_str_t text; /* the value; data is nullptr if Redis has no string there */
    int64_t ttl_ms; /* ms until the override expires; negative: never */
    bool is_gone;   /* the override was removed while the page was made */
};

enum class ScanResult {
    kWaits = 0,
    kDone,
    kAway,    /* Redis does not answer */
    kRefused, /* Redis has replied with an error, which was logged */
    kMoved    /* the server of the position is no master any more */
};

struct ScanPage {
    ScanResult result;
    Array<ScannedOverride> overrides;
    ScanPosition next; /* position of the next page, if there is one */
    bool has_next;
};

/* Begins a page of about `most` overrides from a position on.  Posts the event once the page has
 * its result.  Returns nullptr if Redis is known not to answer, or there is no memory; else
 * leave_scan() must free the page. */
ScanPage *scan_overrides(RemoteZone &zone, const ScanPosition &from, size_t most,
                         ngx_event_t *done);

/* Frees a page, complete or not, and cancels its event.  Must be called once for each page. */
void leave_scan(ScanPage *page);

} // namespace limit_sliding
