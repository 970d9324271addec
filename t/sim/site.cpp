/* Copyright (C) the limit_sliding authors */

#include "site.hpp"

#include <cstdlib>
#include <map>

#include "core/policy/shape.hpp"
#include "core/table/zone.hpp"
#include "lua_scripts.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/asks/ask.hpp"
#include "redis/protocol/key_slot.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis/shared/outbox.hpp"
#include "redis/shares/unit_holder.hpp"
#include "world.hpp"

namespace sim {

using namespace limit_sliding;

Site *site;

namespace {

constexpr size_t kTableBytes = 32 * 1024;
constexpr size_t kAsideBytes = 8 * 1024;
constexpr uint8_t kSecret[kSecretBytes] = {1, 2, 3};

/* A script with its digest, which are made once for all seeds. */
struct Script {
    std::string text;
    std::string digest;
};

const Script &script_of(unsigned mask) {
    static std::map<unsigned, Script> scripts;
    Script &made = scripts[mask];
    if (made.text.empty()) {
        std::string text(script(mask, nullptr, 0) + 1, '\0');
        text.resize(script(mask, text.data(), text.size()));
        made = {text, add_script(text)};
    }
    return made;
}

ngx_addr_t *address_of(ngx_pool_t *pool, unsigned number) {
    auto *address = static_cast<ngx_addr_t *>(ngx_pcalloc(pool, sizeof(ngx_addr_t)));
    auto *in = static_cast<sockaddr_in *>(ngx_pcalloc(pool, sizeof(sockaddr_in)));
    in->sin_family = AF_INET;
    in->sin_port = htons(static_cast<in_port_t>(7000 + number));
    in->sin_addr.s_addr = htonl(0x0a000000 + number);
    address->sockaddr = reinterpret_cast<sockaddr *>(in);
    address->socklen = sizeof(sockaddr_in);
    return address;
}

void add_server(Settings &settings, ngx_pool_t *pool, unsigned number) {
    limit_sliding::Server *server = settings.servers.add(pool);
    server->text
        = join(pool, "10.0.0." + std::to_string(number) + ":" + std::to_string(7000 + number));
    server->url.host = join(pool, "10.0.0." + std::to_string(number));
    server->url.port = static_cast<in_port_t>(7000 + number);
    server->url.addrs = address_of(pool, number);
    server->url.naddrs = 1;
}

void destroy_cluster(Cluster *cluster) {
    while (!cluster->nodes_.empty()) {
        cluster->free_node(cluster->nodes_.front());
    }
    destroy_on_heap(cluster);
}

} // namespace

Server *server_at(unsigned number) {
    return number >= 1 && number <= site->servers.size() ? site->servers[number - 1].get()
                                                         : nullptr;
}

void *Machine::take(size_t bytes) {
    void *p = aligned_alloc(4096, bytes);
    memset(p, 0, bytes);
    memory_.emplace_back(p);
    return p;
}

Machine::Machine(const Plan &plan) {
    auto *memory = static_cast<u_char *>(take(kTableBytes));
    aside_.init(memory, kTableBytes, ZoneMemory::kRedis, 0, kSecret);
    table = Zone::init(memory + aside_.bytes, kTableBytes - aside_.bytes, plan.policy,
                       1700000000000, kSecret);
    zone.refusals = Refusals::init(take(kAsideBytes), kAsideBytes);
    zone.last_overrides = aside_.redis_overrides;
    zone.log_after = &log_after_;
    if (plan.lease != 0) { zone.leases = Leases::init(take(kAsideBytes), kAsideBytes); }

    if (plan.sync_ms != 0) { zone.outbox = Outbox::init(take(kAsideBytes), kAsideBytes); }
}

Site::Site(const Plan &drawn) : plan(drawn), shape_("}:" + std::string(Shape(plan.policy).text())) {
    site = this;
    pool_ = ngx_create_pool(16 * 1024, ngx_cycle->log);
    set_cycle_pool(pool_);
    for (unsigned i = 1; i <= plan.nservers + plan.nsentinels; i++) {
        servers.push_back(std::make_unique<Server>(i, plan.ahead_us));
    }

    if (plan.topology == Topology::kCluster) {
        owners_.resize(kClusterSlots);
        for (size_t slot = 0; slot < owners_.size(); slot++) {
            owners_[slot] = static_cast<uint8_t>(1 + slot * plan.nservers / kClusterSlots);
        }
    }

    for (size_t i = 0; i < plan.nservers; i++) {
        servers[i]->set_role(plan.topology == Topology::kSentinel && i != 0 ? Role::kReplica
                                                                            : Role::kMaster);
    }

    for (size_t i = 0; i < plan.nsentinels; i++) {
        servers[plan.nservers + i]->set_role(Role::kSentinel);
    }

    for (size_t i = 0; i < plan.nmachines; i++) {
        machines.push_back(std::make_unique<Machine>(plan));
        for (size_t j = 0; j < plan.nworkers; j++) {
            workers.push_back(std::make_unique<Worker>());
            workers.back()->machine = machines.back().get();
            workers.back()->redis.client.seat = j;
            start(*workers.back());
        }
    }
}

/* As worker.zone.prefix has them. */
static size_t slot_of(const std::string &key) {
    return static_cast<size_t>(key_slot("p:z:{" + key + "}"));
}

Server &Site::server_of(const std::string &key) {
    return plan.topology == Topology::kCluster ? *servers[owners_[slot_of(key)] - 1u] : master();
}

void Site::reshard() {
    const auto to = static_cast<uint8_t>(between(1, plan.nservers));
    for (size_t n = 0; n < plan.nkeys; n++) {
        const size_t slot = slot_of("k" + std::to_string(n));
        if (chance(500) || owners_[slot] == to) { continue; }

        trace("slot %zu: moves to server %u", slot, static_cast<unsigned>(to));
        count("moved slots");
        for (size_t other = 0; other < plan.nkeys; other++) {
            const std::string key = "p:z:{k" + std::to_string(other) + "}";
            if (slot_of("k" + std::to_string(other)) == slot) {
                servers[to - 1u]->store.take(servers[owners_[slot] - 1u]->store, key);
            }
        }
        owners_[slot] = to;
    }
}

void Site::fail_over(bool keeps_keys) {
    Server &last = master();
    master_ = (master_ + 1) % plan.nservers;
    trace("server %u: becomes the master", master().number());
    count("failovers");
    master().promote(last, keeps_keys);
}

Site::~Site() { site = nullptr; }

void Site::start(Worker &worker) {
    Redis &redis = worker.redis;
    Settings &settings = redis.settings;
    settings.name = ngx_string("shared");
    settings.topology = plan.topology;
    settings.connect_timeout = plan.connect_timeout_ms;
    settings.timeout = plan.timeout_ms;
    settings.on_error = OnError::kDeny;
    settings.key_prefix = ngx_string("p:");
    settings.key_format = KeyFormat::kPlain;
    const bool has_sentinels = plan.topology == Topology::kSentinel;
    const size_t first = has_sentinels ? plan.nservers : 0;
    const size_t n = has_sentinels                         ? plan.nsentinels
                     : plan.topology == Topology::kCluster ? plan.nservers
                                                           : 1;
    for (size_t i = 1; i <= n; i++) {
        add_server(settings, pool_, static_cast<unsigned>(first + i));
    }

    const Algorithm algorithm
        = plan.policy.is_in_flight() ? Algorithm::kFixed : plan.policy.algorithm;
    redis.algorithms = 1u << index_of(algorithm);
    redis.settles = plan.settles;
    redis.syncs = plan.sync_ms != 0;
    const Script &made
        = script_of(static_cast<unsigned>(redis.algorithms)
                    | (plan.topology == Topology::kCluster ? kScriptCluster : 0)
                    | (plan.settles ? kScriptSettles : 0) | (plan.sync_ms != 0 ? kScriptSyncs : 0));
    redis.script = to_str(made.text);
    redis.script_sha1 = to_str(made.digest);
    static const std::string heartbeat = add_script(std::string(heartbeat_script()));
    static const std::string hold = add_script(std::string(hold_script()));
    redis.heartbeat_sha1 = to_str(heartbeat);
    redis.hold_sha1 = to_str(hold);
    redis.probe_policy.window_ms = 1000;
    redis.probe_policy.algorithm = algorithm;
    redis.probe_zone.redis = &redis;
    redis.probe_zone.policy = &redis.probe_policy;
    redis.probe_zone.prefix = ngx_string("p:{");
    redis.probe_zone.shape = to_str(shape_);
    redis.shared = &worker.machine->shared;

    worker.zone = worker.machine->zone;
    worker.zone.redis = &redis;
    worker.zone.prefix = ngx_string("p:z:{");
    worker.zone.shape = to_str(shape_);
    worker.zone.name = ngx_string("z");
    worker.zone.policy = &plan.policy;
    worker.zone.on_error = OnError::kDeny;
    worker.zone.lease = plan.lease;
    worker.zone.settles = plan.settles;
    worker.zone.sync_ms = plan.sync_ms;
    if (!redis_enter(&redis)) { abort(); }
}

void Site::check_idle(const Worker &worker) const {
    const Client &client = worker.redis.client;
    if (client.asks.root != client.asks.sentinel) { broken("an ask is left"); }

    if (!const_cast<Client &>(client).waiting.empty()) { broken("a waiter is left"); }

    if (client.settling.units != 0) { broken("settled units are left"); }

    if (client.settling.nasks != 0) { broken("a settlement is left"); }

    const Node *node = client.nodes.node;
    if (node != nullptr && (node->ncalls != 0 || node->ndue != 0)) {
        broken("%zu calls and %zu asks are left", node->ncalls, static_cast<size_t>(node->ndue));
    }
}

void Site::end() {
    ngx_exiting = 1;
    close_idle();
    run_for(3000000);
    for (auto &worker : workers) {
        UnitHolder *holder = worker->redis.client.holder;
        if (holder != nullptr && holder->timer.timer_set) { ngx_del_timer(&holder->timer); }
    }

    run_for(200000);
    for (auto &worker : workers) {
        check_idle(*worker);
    }

    if (open_connections() != 0) { broken("%zu connections are left", open_connections()); }

    for (auto &worker : workers) {
        Client &client = worker->redis.client;
        if (client.notices.bytes != 0) { broken("a notice is left"); }

        if (client.look.timer_set) { ngx_del_timer(&client.look); }

        if (client.deadline.timer_set) { ngx_del_timer(&client.deadline); }

        redis_exit(&worker->redis);

        if (client.nodes.node != nullptr && client.nodes.watch == nullptr) {
            destroy_on_heap(client.nodes.node);
        } else if (client.nodes.watch != nullptr) {
            destroy_on_heap(static_cast<SentinelNode *>(client.nodes.node));
            destroy_on_heap(client.nodes.watch);
        } else if (client.nodes.cluster != nullptr) {
            destroy_cluster(client.nodes.cluster);
        }
    }

    if (next_timer_us() != UINT64_MAX) { broken("a timer is left"); }

    if (!ngx_queue_empty(&ngx_posted_events)) { broken("a posted event is left"); }

    ngx_destroy_pool(pool_);
    size_t bytes;
    if (size_t n = live_objects(&bytes)) {
        broken("%zu objects are left, one of %zu bytes", n, bytes);
    }
}

} // namespace sim
