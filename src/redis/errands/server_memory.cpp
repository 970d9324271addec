/* Copyright (C) the limit_sliding authors */

#include "redis/errands/server_memory.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>

#include "core/base/atomics.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/errands/sender.hpp"

namespace limit_sliding {

/* A worker's question, which goes from master to master. */
struct MemoryErrand : Errand, TextSink {
    ServerMemory sum; /* of the masters that have replied */
    bool is_refused;  /* the user of NGINX has no right to ask */
};

namespace {

/* The ms for which the last sums are valid. */
constexpr ngx_msec_t kMemoryKnownMs = 3 * kMemoryAskMs;

/* Returns a number of INFO, with lines "name:value"; 0: INFO does not have it. */
uint64_t number_of(std::string_view info, std::string_view name) {
    const size_t at = info.find(name);
    if (at == info.npos) { return 0; }

    info.remove_prefix(at + name.size());

    const size_t len = std::min(info.find('\r'), info.size());
    const auto number = ngx_atosz(bytes(info), len);
    return number != NGX_ERROR ? number : 0;
}

/* TextSink::add_text: adds the memory of a master.  If a master has no maximum, the sum has
 * none. */
void add_memory(TextSink &sink, std::string_view info) {
    ServerMemory &sum = static_cast<MemoryErrand &>(sink).sum;
    const uint64_t max_bytes = number_of(info, "\nmaxmemory:");
    const bool has_max = max_bytes != 0 && (sum.bytes == 0 || sum.max_bytes != 0);
    sum.max_bytes = has_max ? sum.max_bytes + max_bytes : 0;
    sum.bytes += number_of(info, "\nused_memory:");
    sum.evicted += number_of(info, "\nevicted_keys:");
}

bool put(Node &node, ErrandCall &call) {
    constexpr Arg kArgs[] = {"INFO"};
    call.texts = &static_cast<MemoryErrand &>(call.errands.front());
    return node.command(call, kArgs);
}

/* Continues with the next master, or ends the errand.  A master that forbids INFO now will forbid
 * it in a minute, too.  Other errors pass, such as that a script keeps the master busy. */
void answered(Node &node, ErrandCall &call, Reply &reply) {
    auto &errand = static_cast<MemoryErrand &>(take_errand(call));
    if (reply.type == REDIS_REPLY_ERROR) {
        const std::string_view error = view(reply.text, reply.len);
        errand.is_refused = starts_with(error, "NOPERM") || starts_with(error, "ERR ");
        node.log->write(0, "memory and evictions are not known: %s", reply_text(&reply));
        return;
    }

    if (reply.type != REDIS_REPLY_STRING) {
        node.blame(reply);
        return;
    }

    node.succeeded();
    Cluster *cluster = errand.redis->client.nodes.cluster;
    errand.master = node.endpoint->id() + 1;
    if (cluster != nullptr && cluster->master_from(errand.master) != nullptr) {
        send(errand);
        return;
    }

    SharedMemoryReport &report = errand.redis->shared->memory;
    store(&report.memory.bytes, errand.sum.bytes);
    store(&report.memory.max_bytes, errand.sum.max_bytes);
    store(&report.memory.evicted, errand.sum.evicted);
    shared(&report.at_ms).store(ngx_current_msec, std::memory_order_release);
}

constexpr ErrandKind kMemory = {nullptr, put, answered, [](Errand &, Failure) {}};

/* Returns this worker's errand; nullptr: there is no memory. */
MemoryErrand *errand_of(Redis &redis) {
    MemoryErrand *&errand = redis.client.memory;
    if (errand == nullptr) {
        errand = create<MemoryErrand>(ngx_cycle->pool);
        if (errand == nullptr) { return nullptr; }

        errand->redis = &redis;
        errand->kind = &kMemory;
        errand->slot = kMasterSlot;
        errand->add_text = add_memory;
    }
    return errand;
}

} // namespace

std::optional<ServerMemory> look_at_memory(Redis &redis) {
    SharedMemoryReport &report = redis.shared->memory;
    MemoryErrand *errand = errand_of(redis);
    uint64_t due_ms = load(&report.due_ms);
    if (errand != nullptr && errand->state == ErrandState::kIdle && !errand->is_refused
        && !is_away(redis) && ngx_current_msec >= due_ms
        && shared(&report.due_ms)
               .compare_exchange_strong(due_ms, ngx_current_msec + kMemoryAskMs,
                                        std::memory_order_relaxed)) {
        errand->sum = {};
        errand->master = 0;
        send(*errand);
    }

    const uint64_t at_ms = shared(&report.at_ms).load(std::memory_order_acquire);
    if (at_ms == 0 || ngx_current_msec > at_ms + kMemoryKnownMs) { return std::nullopt; }

    return ServerMemory{load(&report.memory.bytes), load(&report.memory.max_bytes),
                        load(&report.memory.evicted)};
}

} // namespace limit_sliding
