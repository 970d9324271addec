/* Copyright (C) the limit_sliding authors */

#include "redis/calls/server_memory.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>

#include "core/base/atomics.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/calls/ask.hpp"
#include "redis/calls/client.hpp"

namespace limit_sliding {

/* A worker's question, which goes from master to master. */
struct MemoryErrand : Errand, TextSink {
    Redis *redis;
    ServerMemory told; /* by the present one */
    ServerMemory sum;
    uint64_t next;   /* the first master has this id, or a higher one */
    ngx_uint_t hops; /* nodes that could not be connected to */
    bool is_under_way;
    bool is_refused; /* the user of NGINX has no right to ask */
};

namespace {

/* The last replies are shown for so long. */
constexpr ngx_msec_t kMemoryKnownMs = 3 * kMemoryAskMs;

struct MemoryCall : Call {
    MemoryErrand *errand;
};

/* Returns a number of INFO, with lines "name:value"; 0: there is none. */
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

    shared(&report.memory.bytes).store(errand.sum.bytes, std::memory_order_relaxed);
    shared(&report.memory.max_bytes).store(errand.sum.max_bytes, std::memory_order_relaxed);
    shared(&report.memory.evicted).store(errand.sum.evicted, std::memory_order_relaxed);
    shared(&report.told_ms).store(ngx_current_msec, std::memory_order_release);
}

/* Adds the reply of a master.  If one may use any memory, all may. */
void add(ServerMemory &sum, const ServerMemory &one) {
    const bool is_first = sum.bytes == 0;

    sum.max_bytes = one.max_bytes != 0 && (is_first || sum.max_bytes != 0)
                        ? sum.max_bytes + one.max_bytes
                        : 0;
    sum.bytes += one.bytes;
    sum.evicted += one.evicted;
}

/* Returns the master that is to be asked next, where `node` is one; nullptr: all were. */
Node *next_master(const MemoryErrand &errand, Node *node) {
    Cluster *cluster = errand.redis->client.nodes.cluster;
    if (cluster != nullptr) { return cluster->master_from(errand.next); }

    return errand.next == 0 ? node : nullptr;
}

/* Goes on after a master has told. */
void go_on(MemoryErrand &errand, Node &node) {
    errand.next = node.endpoint->id() + 1;

    Node *next = next_master(errand, &node);
    if (next != nullptr) {
        next->send_errand(errand);
        return;
    }

    errand.is_under_way = false;
    publish(errand);
}

void answered(Node &node, Call &to, Reply *reply) {
    MemoryErrand &errand = *static_cast<MemoryCall &>(to).errand;

    ngx_free(&to);
    if (reply != nullptr && reply->type == REDIS_REPLY_STRING) {
        node.succeeded();
        add(errand.sum, errand.told);
        go_on(errand, node);
        return;
    }

    errand.is_under_way = false;
    if (reply == nullptr) { return; }

    if (reply->type != REDIS_REPLY_ERROR) {
        node.blame(*reply);
        return;
    }

    /* A master that forbids INFO now will forbid it in a minute, too.  Other errors pass,
     * such as that a script keeps it busy. */
    const std::string_view error = view(reply->text, reply->len);
    errand.is_refused = starts_with(error, "NOPERM") || starts_with(error, "ERR ");
    node.log->write(0, "memory and evictions are not known: %s", reply_text(reply));
}

/* The errand's function for a node that is ready.  It may be any node, if the masters
 * were not known when it began. */
void ask(Errand &to, Node &node) {
    auto &errand = static_cast<MemoryErrand &>(to);
    Node *master = next_master(errand, &node);
    if (master != nullptr && master != &node) {
        master->send_errand(errand);
        return;
    }

    auto *call = create_call<MemoryCall>(answered);
    if (call != nullptr) {
        const Arg args[] = {"INFO"};

        errand.told = {};
        call->errand = &errand;
        call->texts = &errand;
        if (node.command(*call, args)) { return; }
    }

    ngx_free(call);
    errand.is_under_way = false;
}

/* The errand's function for a node that cannot be connected to.  While it is not known
 * which masters there are, another node may tell. */
void try_another(Errand &to, Node &failed) {
    auto &errand = static_cast<MemoryErrand &>(to);
    Nodes &nodes = errand.redis->client.nodes;
    Node *other = nodes.route(0);
    if (!nodes.are_known() && other != &failed && errand.hops++ < kHopsMax) {
        other->send_errand(errand);
    } else {
        errand.is_under_way = false;
    }
}

void begin(MemoryErrand &errand) {
    errand.sum = {};
    errand.next = 0;
    errand.hops = 0;
    errand.is_under_way = true;
    errand.redis->client.nodes.route(0)->send_errand(errand);
}

/* Returns this worker's errand; nullptr: there is no memory. */
MemoryErrand *errand_of(Redis &redis) {
    MemoryErrand *&errand = redis.client.memory;
    if (errand == nullptr) {
        errand = create<MemoryErrand>(ngx_cycle->pool);
        if (errand == nullptr) { return nullptr; }

        errand->redis = &redis;
        errand->run = ask;
        errand->fail = try_another;
        errand->add_text = [](TextSink &sink, std::string_view info) {
            static_cast<MemoryErrand &>(sink).told
                = {number_of(info, "\nused_memory:"), number_of(info, "\nmaxmemory:"),
                   number_of(info, "\nevicted_keys:")};
        };
    }

    return errand;
}

/* Returns true if it is this worker's turn to ask. */
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
    if (errand != nullptr && !errand->is_under_way && !errand->is_refused && can_ask(redis)
        && take_turn(report)) {
        begin(*errand);
    }

    const uint64_t told_ms = shared(&report.told_ms).load(std::memory_order_acquire);
    if (told_ms == 0 || ngx_current_msec > told_ms + kMemoryKnownMs) { return std::nullopt; }

    return ServerMemory{load(&report.memory.bytes), load(&report.memory.max_bytes),
                        load(&report.memory.evicted)};
}

} // namespace limit_sliding
