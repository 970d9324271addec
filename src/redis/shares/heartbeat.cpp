/* Copyright (C) the limit_sliding authors */

/* Heartbeats of unit holders: calls of heartbeat_script(), the replies, and their effects on the
 * shares of the holder. */

#include "redis/shares/share.hpp"

#include <hiredis/hiredis.h>
#include <unistd.h>

#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "redis/asks/script_call.hpp"
#include "redis/protocol/scripts.hpp"

namespace limit_sliding {

namespace {

constexpr ngx_msec_t kBeatMs = 1000;

/* The ms after which a holder looks again whether Redis may be asked. */
constexpr ngx_msec_t kLookMs = 100;

UnitHolder &holder_of(Errand &errand) { return static_cast<UnitHolder &>(errand); }

/* Returns true if Redis may grant units that requests of this holder use. */
bool has_unreported(UnitHolder &holder) {
    if (holder.is_registered && !is_in_grace(holder)) { return false; }

    for (const Share &share : shares_of(holder)) {
        if (!share.is_known && share.used != 0) { return true; }
    }
    return false;
}

/* Gives the holder a new id.  Returns false if there are no random numbers. */
bool set_id(UnitHolder &holder) {
    if (getentropy(&holder.id, sizeof(holder.id)) != 0) { return false; }

    const Redis &redis = *holder.redis;
    shared(&redis.shared->holders[redis.client.seat]).store(holder.id);
    return true;
}

bool put(Node &node, ErrandCall &call) {
    UnitHolder &holder = holder_of(call.errands.front());
    const Redis &redis = *holder.redis;
    const HeartbeatName name(holder.id);
    u_char text[4 * NGX_INT64_LEN];
    u_char *last = text;
    if (!holder.is_registered) { holder.next_epoch++; }

    const bool is_new = holder.connection != node.nconnected;
    const Arg args[] = {call.whole ? "EVAL" : "EVALSHA",
                        call.whole ? heartbeat_script() : view(redis.heartbeat_sha1),
                        "3",
                        name.key(redis),
                        {view(redis.settings.key_prefix), "holders"},
                        {view(redis.settings.key_prefix), kGraceName},
                        append_digits(&last, holder.next_epoch),
                        append_digits(&last, holder.epoch),
                        append_digits(&last, holder.since),
                        append_digits(&last, kHolderLifeMs),
                        is_new ? "1" : "0",
                        has_unreported(holder) ? "1" : "0"};
    return node.command(call, args);
}

/* Marks all shares unknown: Redis may have dropped this holder's units.  Continues under another
 * id, because Redis may still have units of the old id that were given back. */
void begin_anew(UnitHolder &holder) {
    for (Share &share : shares_of(holder)) {
        add(&holder.redis->client.calls->uncounted, share.used);
        set_unknown(share);
    }

    (void)set_id(holder);
    holder.is_registered = false;
    holder.epoch = 0;
    beat(holder);
}

/* Returns why Redis may not know all units, for a holder that gets this TIME. */
const char *why_grace(const UnitHolder &holder, uint64_t since) {
    if (holder.epoch == 0) { return "it has just begun to hear workers"; }
    if (since == holder.since) { return "a worker comes from another server"; }

    return is_valid(holder) ? "it has restarted, has lost data, or is another server"
                            : "it has heard no worker for a while";
}

/* Counts a grace once for all workers, and logs its begin and end, at most once a minute.  Replies
 * of several workers may be read in another order than that of Redis: one that was sent before the
 * begin tells of no end, and one whose grace may be over by now tells of no begin. */
void note_grace(const Redis &redis, ngx_msec_t sent, ngx_msec_t left_ms, const char *why) {
    Atomic<uint64_t> &grace = shared(&redis.shared->grace);
    uint64_t known = grace.load();
    if (known == 0 && sent + left_ms > ngx_current_msec) {
        if (!grace.compare_exchange_strong(known, 2 * ngx_current_msec)) { return; }

        add(&redis.client.calls->graces, 1);
        if (!is_due_once(redis.shared->grace_told)) { return; }

        grace.fetch_or(1);
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "limit_sliding redis \"%V\": %s, it grants no further units in flight until "
                      "workers had time to report theirs",
                      &redis.settings.name, why);
    } else if (known != 0 && left_ms == 0 && sent >= known / 2
               && grace.compare_exchange_strong(known, 0) && (known & 1) != 0) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "limit_sliding redis \"%V\": it grants units in flight again, after %uL ms",
                      &redis.settings.name, ngx_current_msec - known / 2);
    }
}

void answered(Node &node, ErrandCall &call, Reply &reply) {
    if (reply.type == REDIS_REPLY_ERROR) {
        note_error(node, reply);
        return;
    }

    const int64_t *numbers = reply.numbers;
    if (reply.type != REDIS_REPLY_ARRAY || reply.n != 3 || numbers[0] < 0 || numbers[0] > 1
        || numbers[1] < 0 || numbers[2] < 0 || numbers[2] > static_cast<int64_t>(kHolderLifeMs)) {
        node.blame(reply);
        return;
    }

    UnitHolder &holder = holder_of(take_errand(call));
    /* an open breaker is closed by its probe: a Redis without memory answers heartbeats alone */
    if (!holder.redis->shared->breaker.is_open()) { node_answered(node); }

    const auto since = static_cast<uint64_t>(numbers[1]);
    const auto left_ms = static_cast<ngx_msec_t>(numbers[2]);
    note_grace(*holder.redis, call.sent, left_ms, why_grace(holder, since));
    holder.since = since;
    holder.grace_until = ngx_current_msec + left_ms;
    if (numbers[0] == 0) {
        begin_anew(holder);
        return;
    }

    const bool was_ready = is_ready(holder), is_first = holder.epoch == 0;
    holder.epoch = holder.next_epoch;
    holder.valid_until_us = call.sent_us + kValidMs * 1000;
    holder.connection = node.nconnected;
    holder.is_registered = true;
    if (was_ready) { return; }

    /* messages may be sent now; under a new id, Redis has no units */
    for (Share &share : shares_of(holder)) {
        if (is_first) { set_unknown(share); }

        share.has_failed = false;
        if (is_in_grace(holder)) { fail_unasked(share); }

        ask_done(share);
    }
}

void failed(Errand &errand, Failure failure) {
    UnitHolder &holder = holder_of(errand);
    if (failure != Failure::kUnsent) { holder.is_registered = false; }

    /* requests must not wait for a heartbeat that Redis has not confirmed */
    for (Share &share : shares_of(holder)) {
        fail_unasked(share);
        ask_done(share);
    }
}

constexpr ErrandKind kHeartbeat = {nullptr, put, answered, failed};

void tick(UnitHolder &holder) {
    /* a heartbeat that is due must not come later than Redis itself, or the holder dies */
    if (!may_beat(holder)) {
        ngx_add_timer(&holder.timer, kLookMs);
        return;
    }

    ngx_add_timer(&holder.timer, kBeatMs);
    beat(holder);
    if (!is_ready(holder) || is_away(*holder.redis)) { return; }

    /* messages that have failed, or are old, are sent again; the oldest ones come first */
    for (Share &share : shares_of(holder)) {
        if (!is_old(share) && !holder.has_failed) { break; }

        share.has_failed = false;
        ask_done(share);
    }

    holder.has_failed = false;
}

} // namespace

UnitHolder *get_holder(Redis &redis) {
    if (redis.client.holder != nullptr) { return redis.client.holder; }

    auto *holder = create<UnitHolder>(ngx_cycle->pool);
    if (holder == nullptr) { return nullptr; }

    holder->kind = &kHeartbeat;
    holder->redis = &redis;
    ngx_queue_init(&holder->shares);
    init_event<tick>(holder->timer, *holder);
    holder->timer.cancelable = 1; /* requests keep an exiting worker, not their heartbeat */
    bury_holder(redis, redis.client.seat);
    if (!set_id(*holder)) { return nullptr; }

    ngx_add_timer(&holder->timer, 0);
    redis.client.holder = holder;
    return holder;
}

} // namespace limit_sliding
