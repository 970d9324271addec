/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/script_reply.hpp"

#include "redis/scripts.hpp"

namespace limit_sliding {

namespace {

/* Logs that a key has a limit which is none, once a minute for all workers. */
void log_bad_limit(const RemoteZone &zone)
{
    if (zone.log_after == nullptr) {
        /* a probe's */
        return;
    }

    ngx_atomic_uint_t after = *zone.log_after;
    if ((after && static_cast<ngx_msec_int_t>(after - ngx_current_msec) > 0)
        || !ngx_atomic_cmp_set(zone.log_after, after,
                               ngx_current_msec + 60 * 1000)) {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "invalid limit of a key of zone \"%V\" in redis, "
                  "the zone's rate applies",
                  &zone.name);
}

/* Are these a limit, and the values of an algorithm? */
bool is_state(const Policy *policy, const int64_t *numbers)
{
    constexpr int64_t kMost = kLimitMax;
    int64_t limit = numbers[0];
    if (limit > kScriptOwn) {
        limit -= kScriptOwn;
    }

    if (limit < -kMost || limit > kMost) {
        return false;
    }

    int64_t least = policy->algorithm == Algorithm::kLog ? -1 : 0;
    for (unsigned i = 1; i <= remote_values(*policy); i++) {
        if (numbers[i] < least) {
            return false;
        }
    }
    return true;
}

} // namespace

bool is_script_reply(AskCall &call, const Reply &reply)
{
    const int64_t *next = reply.numbers;
    if (reply.n != 1 + call.numbers || *next++ < 0) {
        return false;
    }

    for (const Ask &ask : call.asks) {
        int64_t granted = *next++;
        if (granted < 0 || granted > static_cast<int64_t>(ask.asked_units)) {
            return false;
        }

        for (const AskPart &part : ask.parts) {
            if (!is_state(part.claim.policy, next)) {
                return false;
            }

            next += 1 + remote_values(*part.claim.policy);
            if (part.held && *next++ < 0) {
                return false;
            }
        }
    }
    return true;
}

void ScriptReply::read(const Ask &ask, Answer *answer)
{
    answer->granted = *next_++;
    PartAnswer *told = answer->parts;
    for (const AskPart &part : ask.parts) {
        int64_t limit = *next_++;
        told->off = limit == 0;
        told->own = limit == 0 ? kUnlimited : kLimitUnset;
        if (limit > kScriptOwn) {
            limit -= kScriptOwn;
            told->own = static_cast<uint32_t>(limit);
        } else if (limit < 0) {
            log_bad_limit(*part.zone);
            limit = -limit;
        }

        told->state
            = {now_ms_, limit ? static_cast<uint32_t>(limit) : part.claim.limit,
               next_};

        next_ += remote_values(*part.claim.policy);
        told->forgotten = part.held ? *next_++ : 0;
        told++;
    }
}

void describe_part(const AskPart &part, const PartAnswer &answer,
                   uint32_t before, bool admitted, Verdict *verdict)
{
    const Claim &claim = part.claim;
    if (answer.off) {
        *verdict = {};
        verdict->limit = claim.limit;
        verdict->remaining = claim.limit;
        return;
    }

    *verdict
        = answer.state.describe(*claim.policy, claim.cost, before, admitted,
                                claim.purpose != Purpose::kConsume);
}

} // namespace limit_sliding
