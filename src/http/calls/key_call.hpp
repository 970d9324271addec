/* Copyright (C) the limit_sliding authors */

/*
 * A call about one key, by the API or by Lua, which belongs to no limit of a request.
 *
 * In this node's memory, a call ends at once.  If the zone is in Redis, a function returns kWaits
 * once Redis is asked.  The event of the waiter then wakes the caller, who continues the call by
 * `next`, which may return kWaits again.  The caller ends a call that nobody waits for any more by
 * leave_ask().
 */

#pragma once

#include <optional>
#include <string_view>

#include "core/policy/override.hpp"
#include "http/conf/zone_conf.hpp"
#include "ngx/ngx.hpp"
#include "redis/errands/remote_claim.hpp"

namespace limit_sliding {

enum class Progress {
    kDone,
    kWaits,
    kNoRoom, /* a full zone has no place for a key to be charged */
    kAway,   /* Redis has done nothing, because it does not answer */
    kFailed, /* Redis has not replied to a command, which it may have executed */
    kRefused /* Redis has replied to a command with an error */
};

struct KeyCall {
    ZoneConf *zone;
    ngx_str_t key;
    int64_t units; /* to be taken or charged; negative: to be refunded */

    Override own; /* override of the key; not set if it is not known yet */

    /* The limit of a key without an override: that of the caller or of the key's last request, or
     * else the zone's; not set if it is not known. */
    Override usual;

    std::optional<uint64_t> ttl_s; /* s until the override expires */

    Claim claim;
    TermsRoom room; /* of the claim */

    /* For a key in Redis. */
    RemoteClaim remote;
    Waiter waiter;
    Progress (*next)(KeyCall &call);

    /* Returns the limit in force. */
    const Override &limit() const { return own.is_set() ? own : usual; }

    /* Returns true if a limit of the key is known. */
    bool has_basis() const { return has_number(own) || has_number(usual); }

    /* Returns the limit by which the history is shown.  A key without a known limit gets the
     * largest one: in most algorithms, the used units do not depend on the limit. */
    Override basis() const { return has_number(own) ? own : usual_basis(); }
    Override usual_basis() const {
        return has_number(usual) ? usual : Override{zone->limit_max(), {}};
    }

    /* Gives the claim this limit. */
    void set_limit(const Override &limit) {
        (void)apply_override(claim, zone->policy, limit, &room);
    }
};

/* Looks at the key: decides the claim, and sets `own`.  If no Redis is asked, also sets `ttl_s`. */
Progress look(KeyCall &call);

/* Decides the claim by this node's count. */
void look_here(KeyCall &call);

/* Charges the units, or refunds them.  What Redis charges is also charged in this node's memory,
 * in case Redis fails later. */
Progress charge(KeyCall &call);

/* Takes the units if the limit has room; else rejects the claim. */
Progress take(KeyCall &call);

/* Deletes the history of the key.  Looks at a key in Redis first: that shows whether it answers. */
Progress forget(KeyCall &call);

/* Charges units to the key of a claim in this node's memory, or refunds negative units, the newest
 * first.  Sets *lost to the units that could not be charged.  Returns false if the zone is full and
 * refuses the key. */
bool settle_here(const Claim &claim, int64_t units, uint64_t *lost);

/* The facts about a key that are deleted.  Each includes those before it. */
enum class Facts {
    kRefusals,
    kLeases,
    kHistory /* with the debt, unsent units, and the key's place among the offenders */
};

/* Deletes facts about the key in this node's memory, in all windows that the key is known to have
 * had.  Afterwards the claim has no valid limit. */
void forget_here(KeyCall &call, Facts facts);

/* ---- the key is in Redis ---- */

/* Sets the key's override to the text of a rate for ttl_ms, 0: forever; or removes the override if
 * the text is empty.  Must follow a look. */
Progress set_override(KeyCall &call, std::string_view rate, ngx_msec_t ttl_ms);

/* Sets `ttl_s`.  The result of the wait is kRejected if Redis refuses to tell it.  Must follow a
 * look. */
Progress ask_ttl(KeyCall &call);

} // namespace limit_sliding
