/* Copyright (C) the limit_sliding authors */

/*
 * A worker as a holder of units in one Redis, for zones with inflight=.
 *
 * Redis stores the units of a key by holder, and counts them while the holder has a heartbeat, a
 * key that expires after kHolderLifeMs.  The units of a dead worker are therefore free within this
 * time, and Redis stores nothing for single requests.  The scripts are heartbeat.lua and hold.lua.
 *
 * The value of the heartbeat is the epoch of the holder.  Redis refuses messages of other epochs.
 * A call without a reply may still arrive later, so the holder then takes a new epoch before it
 * sends anything else.
 *
 * A holder is valid for kValidMs after it has sent the last heartbeat that Redis has confirmed.
 * The heartbeat lives longer, so Redis counts the units of a valid holder even if its clock is
 * slower, or if the worker is stopped for a moment.
 *
 * If the heartbeat has expired, or Redis has lost its memory, the holder takes another id, under
 * which it sends all units again, a bounded number at a time.  Units under the old id do not count
 * any more.
 *
 * If Redis has lost its memory, or has not heard the holders for another reason, it grants nothing
 * for a while, a grace, which lasts until each holder has sent its units, or has died.
 */

#pragma once

#include "ngx/strings.hpp"
#include "redis/errands/sender.hpp"

namespace limit_sliding {

/* The ms after which Redis deletes a heartbeat, and the ms for which its holder is valid. */
constexpr ngx_msec_t kHolderLifeMs = 3000;
constexpr ngx_msec_t kValidMs = 2500;

/* The name of the grace behind the prefix of keys. */
constexpr std::string_view kGraceName = "holders:grace";

/* The name of a heartbeat behind the prefix of keys: "holder:" and the id of the holder in hex. */
struct HeartbeatName {
    explicit HeartbeatName(uint64_t id) { ngx_sprintf(text, "holder:%016xL", id); }

    /* Returns the key of the heartbeat, which must not outlive this object. */
    Arg key(const Redis &redis) const {
        return {view(redis.settings.key_prefix), view(text, sizeof(text))};
    }

    u_char text[sizeof("holder:") - 1 + 16];
};

struct UnitHolder : Errand {
    uint64_t id;
    uint64_t epoch;          /* of the last confirmed heartbeat; 0: none was confirmed */
    uint64_t next_epoch;     /* of the heartbeat to be sent */
    uint64_t since;          /* time in ms from which Redis has counted units */
    uint64_t valid_until_us; /* in us of clock_us() */
    ngx_msec_t grace_until;  /* ms until which Redis must grant no units */
    ngx_uint_t connection;   /* Node::nconnected of the last confirmed heartbeat */
    ngx_msec_t tried;        /* ms of the last heartbeat that was sent */
    ngx_event_t timer;       /* for the next heartbeat */
    ngx_queue_t shares;      /* shares_of() */
    bool is_registered;      /* the epoch is confirmed, and no call was lost since */
    bool has_failed;         /* messages have failed since the last tick */
};

/* Returns this worker as a holder of units in the Redis; nullptr: there is no memory.  The first
 * call makes it send heartbeats. */
UnitHolder *get_holder(Redis &redis);

/* Returns true if Redis counts the units of the holder now.  Reads the clock anew. */
bool is_valid(const UnitHolder &holder);

/* Returns true if messages may be sent to Redis. */
bool is_ready(const UnitHolder &holder);

/* Returns true if Redis must grant no units, because other holders may not have sent theirs. */
bool is_in_grace(const UnitHolder &holder);

/* Returns true if Redis may answer a heartbeat.  A Redis without memory refuses requests, which
 * opens the breaker, but confirms the heartbeats of holders that it knows. */
bool may_beat(const UnitHolder &holder);

/* Sends a heartbeat, unless one is under way, or Redis is known not to answer. */
void beat(UnitHolder &holder);

/* Does the same, unless a heartbeat was sent a moment ago. */
void register_holder(UnitHolder &holder);

/* Makes the holder take a new epoch, because a message was lost or refused. */
void renew_epoch(UnitHolder &holder);

/* Deletes the heartbeat of the worker that had this seat and is dead, if there was one.  A worker
 * may call the function for its own seat. */
void bury_holder(Redis &redis, size_t seat);

} // namespace limit_sliding
