/* Copyright (C) the limit_sliding authors */

/*
 * The shares of a worker in the units of keys, in zones with inflight= and redis=.
 *
 * The share of a key has the units that requests of this worker use, and units that are free, kept
 * for the next request for kKeptMs.  A message to Redis names the units in use, and the units that
 * are wanted beyond them.  The reply grants as many of the wanted units as the limit allows.  So
 * each message takes units, gives units back, or repairs a loss, and may be repeated.  A share has
 * one message under way at most, and shares that are due at once share a call.
 */

#pragma once

#include "redis/asks/ask.hpp"
#include "redis/shares/unit_holder.hpp"

namespace limit_sliding {

/* The ms for which units are kept that no request uses. */
constexpr ngx_msec_t kKeptMs = 200;

/* A worker keeps at most 1 / kKeptPart of the free units of a key for kKeptMs. */
constexpr uint64_t kKeptPart = 4;

/* The share of a key.  The claim of its only part has the limit of the last message. */
struct Share : Ask {
    UnitHolder *holder;
    ngx_queue_t all;          /* in UnitHolder::shares, in order of the last message */
    uint64_t used;            /* units that requests use */
    uint64_t granted;         /* units that Redis counts at least; 0 unless `is_known` */
    uint64_t excess;          /* free units to be given back by the next message */
    uint64_t least;           /* fewest free units since the timer was set */
    uint64_t epoch;           /* epoch of the holder in the message under way */
    uint64_t base;            /* BASE of this message: units in use */
    uint64_t wanted;          /* WANTED of this message: units wanted beyond BASE */
    uint64_t others;          /* units of other holders at the last reply */
    Override own;             /* override at the last reply */
    uint64_t granted_limit;   /* lowest limit in force under which granted units may be used */
    ngx_msec_t sent;          /* ms of the last message */
    ngx_msec_t own_at;        /* ms of the last message whose reply has confirmed `own` */
    ngx_msec_t refused_until; /* ms until which requests beyond the limit need not ask */
    ngx_event_t timer;        /* ends the time for which units are kept */
    bool is_known;            /* no message was lost, or refused, since the last reply */
    bool has_failed; /* a message has failed, so only waiters make the next one due at once */
    bool is_soon;    /* the timer is not for kKeptMs */

    /* Returns true if the message under way takes units, or looks, under a limit. */
    bool has_limit() const { return wanted != 0 || asked_units != 0; }

    /* Returns the limit in force for the claim. */
    uint64_t limit_for(const Claim &claim) const {
        const Terms terms = terms_of(own);
        return terms == Terms::kLimited     ? limit_under(own, claim.limit)
               : terms == Terms::kUnlimited ? kRemoteMax
                                            : 0;
    }

    /* Returns the units that are free and kept. */
    uint64_t spare() const { return granted - std::min(granted, used); }

    /* Returns the free units of the key, including kept ones. */
    uint64_t free_units() const {
        const uint64_t limit = limit_for(parts[0].claim);
        return limit - std::min(limit, others + used);
    }

    /* Returns the free units that this worker does not keep. */
    uint64_t room() const { return free_units() - std::min(free_units(), spare()); }

    /* Returns the kept units beyond 1 / kKeptPart, which other workers may need. */
    uint64_t crowding() const { return spare() - std::min(spare(), free_units() / kKeptPart); }
};

using ShareList = List<Share, &Share::all>;

inline ShareList &shares_of(UnitHolder &holder) {
    return reinterpret_cast<ShareList &>(holder.shares);
}

inline Share &share_of(Errand &errand) { return static_cast<Share &>(errand); }

/* The ms after which a message is repeated, before Redis forgets the units (kUnitsLifeMs). */
constexpr ngx_msec_t kRepeatMs = 20 * 60 * 1000;

/* The kind of all shares, see hold_call.cpp. */
extern const AskKind kShare;

/* Notes that a request uses units. */
void hold(Share &share, RemoteClaim &remote, uint64_t cost);

/* Admits a claim by kept units.  Returns false if that is not possible. */
bool spend(Share &share, Claim &claim);

/* Returns true if Redis has just refused units, and so would refuse the claim. */
bool is_refused(const Share &share, const Claim &claim);

/* Rejects a claim, and describes the key to it. */
void reject(const Share &share, Claim &claim, Source source);

/* Decides waiters in order of arrival: admits them by granted units, and with `decides_all` rejects
 * the others, because the limit has no room for them.  Claims with a higher limit are left. */
void tell(Share &share, WaiterList &waiters, bool decides_all);

/* Notes that Redis may not count the granted units.  The units are sent again. */
void set_unknown(Share &share);

/* Fails the waiters that no message under way asks for. */
void fail_unasked(Share &share);

/* Returns true if the message must be repeated, before Redis forgets the units. */
inline bool is_old(const Share &share) { return ngx_current_msec - share.sent >= kRepeatMs; }

/* AskKind::rest: sends a message if one is due.  Returns false if the share has no units. */
bool rest(Ask &ask);

/* Initializes a share without units. */
void init_share(Share &share, UnitHolder &holder);

} // namespace limit_sliding
