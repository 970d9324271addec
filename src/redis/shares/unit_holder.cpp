/* Copyright (C) the limit_sliding authors */

#include "redis/shares/unit_holder.hpp"

#include <hiredis/hiredis.h>
#include <unistd.h>

#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/monotonic_clock.hpp"
#include "ngx/strings.hpp"
#include "redis/calls/client.hpp"
#include "redis/calls/script_call.hpp"
#include "redis/protocol/scripts.hpp"

namespace limit_sliding {

namespace {

constexpr ngx_msec_t kBeatMs = 1000;

/* The ms after which a holder looks again whether Redis may be asked. */
constexpr ngx_msec_t kLookMs = 100;

/* The least ms between two heartbeats for which requests wait. */
constexpr ngx_msec_t kPauseMs = 50;

/* The ms for which a holder sends heartbeats after its last use, if it has no units. */
constexpr ngx_msec_t kRestMs = 60 * 1000;

UnitHolder &holder_of(Errand &errand) { return static_cast<UnitHolder &>(errand); }

/* Returns the place of the id of the worker with this seat. */
Atomic<uint64_t> &id_at(Redis &redis, size_t seat) { return shared(&redis.shared->holders[seat]); }

/* ---- dead holders ---- */

/* Deletes the heartbeat of a holder.  Without success, the heartbeat expires by itself. */
struct DeadHolder : Errand {
    uint64_t id;
};

bool put_delete(Node &node, ErrandCall &call) {
    const auto &dead = static_cast<const DeadHolder &>(call.errands.front());
    const HeartbeatName name(dead.id);
    const Arg args[] = {"DEL", name.key(*dead.redis)};
    return put_call(node, call, args);
}

void end_delete(Errand &errand, Failure) { ngx_free(&static_cast<DeadHolder &>(errand)); }

void delete_answered(Node &, ErrandCall &call, Reply &) {
    end_delete(take_errand(call), Failure::kRefused);
}

constexpr ErrandKind kDelete = {nullptr, put_delete, delete_answered, end_delete, nullptr, false};

/* ---- heartbeats ---- */

void beat(UnitHolder &holder) {
    if (holder.state != ErrandState::kIdle || !can_ask(*holder.redis)) { return; }

    holder.tried = ngx_current_msec;
    send(holder);
}

/* Gives the holder a new id.  Returns false if there are no random numbers. */
bool set_id(UnitHolder &holder) {
    if (getentropy(&holder.id, sizeof(holder.id)) != 0) { return false; }

    id_at(*holder.redis, holder.redis->client.seat).store(holder.id);
    return true;
}

/* Continues under another id: Redis may still have units of the old id that were given back. */
void begin_anew(UnitHolder &holder) {
    (void)set_id(holder);
    holder.is_registered = false;
    holder.epoch = 0;
    beat(holder);
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
                        "2",
                        name.key(redis),
                        {view(redis.settings.key_prefix), "holders"},
                        append_digits(&last, holder.next_epoch),
                        append_digits(&last, holder.epoch),
                        append_digits(&last, holder.since),
                        append_digits(&last, kHolderLifeMs),
                        is_new ? "1" : "0"};
    return put_call(node, call, args);
}

/* Handles the reply to a heartbeat that was sent at `sent_us`. */
void told(UnitHolder &holder, const Node &node, bool is_counted, uint64_t sent_us) {
    const bool is_first = holder.epoch == 0;
    if (!is_counted) {
        holder.events->lost(holder);
        begin_anew(holder);
        return;
    }

    const bool was_ready = is_ready(holder);
    holder.epoch = holder.next_epoch;
    holder.valid_until_us = sent_us + kValidMs * 1000;
    holder.connection = node.nconnected;
    holder.is_registered = true;
    if (!was_ready) { holder.events->registered(holder, is_first); }
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
    node_answered(node);
    holder.since = static_cast<uint64_t>(numbers[1]);
    if (numbers[2] != 0) {
        holder.grace_until = ngx_current_msec + static_cast<ngx_msec_t>(numbers[2]);
    }

    told(holder, node, numbers[0] == 1, call.sent_us);
}

void failed(Errand &errand, Failure failure) {
    UnitHolder &holder = holder_of(errand);
    if (failure != Failure::kUnsent) { holder.is_registered = false; }

    holder.events->failed(holder);
}

constexpr ErrandKind kHeartbeat = {nullptr, put, answered, failed, nullptr, false};

void tick(UnitHolder &holder) {
    if (ngx_current_msec - holder.used > kRestMs && ngx_queue_empty(&holder.shares)) {
        holder.is_registered = false;
        return;
    }

    /* a heartbeat that is due must not come later than Redis itself, or the holder dies */
    if (!can_ask(*holder.redis)) {
        ngx_add_timer(&holder.timer, kLookMs);
        return;
    }

    ngx_add_timer(&holder.timer, kBeatMs);
    beat(holder);
    holder.events->ticked(holder);
}

UnitHolder *create_holder(Redis &redis, const UnitHolderEvents &events) {
    auto *holder = create<UnitHolder>(ngx_cycle->pool);
    if (holder == nullptr) { return nullptr; }

    holder->kind = &kHeartbeat;
    holder->redis = &redis;
    holder->events = &events;
    ngx_queue_init(&holder->shares);
    init_event<tick>(holder->timer, *holder);
    holder->timer.cancelable = 1; /* requests keep an exiting worker, not their heartbeat */
    bury_holder(redis, redis.client.seat);
    return set_id(*holder) ? holder : nullptr;
}

} // namespace

UnitHolder *get_holder(Redis &redis, const UnitHolderEvents &events) {
    UnitHolder *&holder = redis.client.holder;
    if (holder == nullptr) { holder = create_holder(redis, events); }

    if (holder != nullptr) {
        holder->used = ngx_current_msec;
        if (!holder->timer.timer_set) { ngx_add_timer(&holder->timer, kBeatMs); }
    }
    return holder;
}

bool is_valid(const UnitHolder &holder) { return clock_us() < holder.valid_until_us; }

bool is_ready(const UnitHolder &holder) {
    const Node &node = *holder.redis->client.nodes.node;
    return holder.is_registered && node.is_ready() && holder.connection == node.nconnected;
}

bool is_in_grace(const UnitHolder &holder) { return ms_until(holder.grace_until) > 0; }

void register_holder(UnitHolder &holder) {
    if (ngx_current_msec - holder.tried >= kPauseMs) { beat(holder); }
}

void renew_epoch(UnitHolder &holder) {
    holder.is_registered = false;
    register_holder(holder);
}

void bury_holder(Redis &redis, size_t seat) {
    Atomic<uint64_t> &place = id_at(redis, seat);
    const uint64_t id = place.load();
    const UnitHolder *own = redis.client.holder;
    if (id == 0 || (own != nullptr && own->id == id) || !can_ask(redis)) { return; }

    auto *dead = create_on_heap<DeadHolder>();
    if (dead == nullptr) { return; }

    dead->kind = &kDelete;
    dead->redis = &redis;
    dead->id = id;
    place.store(0);
    send(*dead);
}

} // namespace limit_sliding
