/* Copyright (C) the limit_sliding authors */

#include "redis/shares/unit_holder.hpp"

#include "ngx/event.hpp"
#include "ngx/memory.hpp"

namespace limit_sliding {

namespace {

/* The least ms between two heartbeats for which requests wait. */
constexpr ngx_msec_t kPauseMs = 50;

/* Deletes the heartbeat of a holder.  Without success, the heartbeat expires by itself. */
struct DeadHolder : Errand {
    uint64_t id;
};

bool put_delete(Node &node, ErrandCall &call) {
    const auto &dead = static_cast<const DeadHolder &>(call.errands.front());
    const HeartbeatName name(dead.id);
    const Arg args[] = {"DEL", name.key(*dead.redis)};
    return node.command(call, args);
}

void end_delete(Errand &errand, Failure) { ngx_free(&static_cast<DeadHolder &>(errand)); }

void delete_answered(Node &, ErrandCall &call, Reply &) {
    end_delete(take_errand(call), Failure::kRefused);
}

constexpr ErrandKind kDelete = {nullptr, put_delete, delete_answered, end_delete};

} // namespace

bool is_valid(const UnitHolder &holder) { return clock_us() < holder.valid_until_us; }

bool is_ready(const UnitHolder &holder) {
    const Node &node = *holder.redis->client.nodes.node;
    return holder.is_registered && node.is_ready() && holder.connection == node.nconnected;
}

bool is_in_grace(const UnitHolder &holder) { return ms_until(holder.grace_until) > 0; }

bool may_beat(const UnitHolder &holder) { return is_ready(holder) || !is_away(*holder.redis); }

void beat(UnitHolder &holder) {
    if (holder.state != ErrandState::kIdle || !may_beat(holder)) { return; }

    holder.tried = ngx_current_msec;
    send(holder);
}

void register_holder(UnitHolder &holder) {
    if (ngx_current_msec - holder.tried >= kPauseMs) { beat(holder); }
}

void renew_epoch(UnitHolder &holder) {
    holder.is_registered = false;
    register_holder(holder);
}

void bury_holder(Redis &redis, size_t seat) {
    Atomic<uint64_t> &place = shared(&redis.shared->holders[seat]);
    const uint64_t id = place.load();
    const UnitHolder *own = redis.client.holder;
    if (id == 0 || (own != nullptr && own->id == id) || is_away(redis)) { return; }

    auto *dead = create_on_heap<DeadHolder>();
    if (dead == nullptr) { return; }

    dead->kind = &kDelete;
    dead->redis = &redis;
    dead->id = id;
    place.store(0);
    send(*dead);
}

} // namespace limit_sliding
