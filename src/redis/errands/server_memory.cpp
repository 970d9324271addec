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
    ServerMemory told; /* memory of the present master */
    ServerMemory sum;
    bool is_refused; /* the user of NGINX has no right to ask */
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

/* Shares the replies of all masters with the other workers. */
void publish(const MemoryErrand &errand) {
    SharedMemoryReport &report = errand.redis->shared->memory;

    store(&report.memory.bytes, errand.sum.bytes);
    store(&report.memory.max_bytes, errand.sum.max_bytes);
    store(&report.memory.evicted, errand.sum.evicted);
    shared(&report.told_ms).store(ngx_current_msec, std::memory_order_release);
}

/* Adds the memory of a master.  If a master has no maximum, the sum has none. */
void add(ServerMemory &sum, const ServerMemory &one) {
    const bool is_first = sum.bytes == 0;

    sum.max_bytes = one.max_bytes != 0 && (is_first || sum.max_bytes != 0)
                        ? sum.max_bytes + one.max_bytes
                        : 0;
    sum.bytes += one.bytes;
    sum.evicted += one.evicted;
}

bool put(Node &node, ErrandCall &call) {
    constexpr Arg kArgs[] = {"INFO"};
    auto &errand = static_cast<MemoryErrand &>(call.errands.front());
    errand.told = {};
    call.texts = &errand;
    return put_call(node, call, kArgs);
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
    add(errand.sum, errand.told);
    Cluster *cluster = errand.redis->client.nodes.cluster;
    errand.master = node.endpoint->id() + 1;
    if (cluster != nullptr && cluster->master_from(errand.master) != nullptr) {
        send(errand);
    } else {
        publish(errand);
    }
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
        errand->add_text = [](TextSink &sink, std::string_view info) {
            static_cast<MemoryErrand &>(sink).told
                = {number_of(info, "\nused_memory:"), number_of(info, "\nmaxmemory:"),
                   number_of(info, "\nevicted_keys:")};
        };
    }

    return errand;
}

/* Returns true if this worker must ask. */
bool take_turn(SharedMemoryReport &report) {
    uint64_t due_ms = load(&report.due_ms);

    return ngx_current_msec >= due_ms
           && shared(&report.due_ms)
                  .compare_exchange_strong(due_ms, ngx_current_msec + kMemoryAskMs,
                                           std::memory_order_relaxed);
}

} // namespace

std::optional<ServerMemory> look_at_memory(Redis &redis) {
    SharedMemoryReport &report = redis.shared->memory;
    MemoryErrand *errand = errand_of(redis);
    if (errand != nullptr && errand->state == ErrandState::kIdle && !errand->is_refused
        && !is_away(redis) && take_turn(report)) {
        errand->sum = {};
        errand->master = 0;
        send(*errand);
    }

    const uint64_t told_ms = shared(&report.told_ms).load(std::memory_order_acquire);
    if (told_ms == 0 || ngx_current_msec > told_ms + kMemoryKnownMs) { return std::nullopt; }

    return ServerMemory{load(&report.memory.bytes), load(&report.memory.max_bytes),
                        load(&report.memory.evicted)};
}

} // namespace limit_sliding
