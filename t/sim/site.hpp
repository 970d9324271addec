/* Copyright (C) the limit_sliding authors */

/* The machines of a seed: each has the memory of a zone, which its workers share, and
 * each worker a client of the Redis. */

#pragma once

#include <list>
#include <memory>
#include <vector>

#include "core/limiter/zone_memory.hpp"
#include "redis/decisions/client.hpp"
#include "server.hpp"

namespace sim {

/* What a seed draws. */
struct Plan {
    limit_sliding::Topology topology;
    limit_sliding::Policy policy;
    uint64_t limit;
    uint32_t lease; /* as RemoteZone has it */
    ngx_msec_t sync_ms;
    bool settles;
    ngx_msec_t connect_timeout_ms;
    ngx_msec_t timeout_ms;
    size_t nservers;
    size_t nsentinels;
    size_t stale; /* the number of a sentinel that misses failovers; 0: none does */
    size_t nmachines;
    size_t nworkers; /* of each */
    size_t nkeys;
    int64_t ahead_us; /* of the clocks of machines: those of servers */
};

/* The memory that the workers of a machine share. */
class Machine {
public:
    explicit Machine(const Plan &plan);

    limit_sliding::RedisShared shared{};
    limit_sliding::RemoteZone zone{}; /* with what is in the memory */
    limit_sliding::Zone *table;

private:
    void *take(size_t bytes);

    struct Free {
        void operator()(void *p) const { free(p); }
    };

    std::vector<std::unique_ptr<void, Free>> memory_;
    limit_sliding::ZoneMemory aside_;
    ngx_atomic_t log_after_ = 0;
};

struct Worker {
    Machine *machine;
    limit_sliding::Redis redis{};
    limit_sliding::RemoteZone zone{};
};

class Site {
public:
    explicit Site(const Plan &plan);
    ~Site();

    /* Ends all workers, and checks that nothing is left. */
    void end();

    /* Returns the server that has the key of this name, or that clients should think so. */
    Server &server_of(const std::string &key);

    /* A slot's server, in a cluster; what else all servers know of each other. */
    unsigned owner(size_t slot) const { return owners_[slot]; }
    Server &master() { return *servers[master_]; }

    /* Other servers take some slots over, with their keys. */
    void reshard();

    /* Another server becomes the master, with or without the keys of the last one. */
    void fail_over(bool keeps_keys);

    Plan plan;
    std::vector<std::unique_ptr<Server>> servers;
    std::vector<std::unique_ptr<Machine>> machines;
    std::vector<std::unique_ptr<Worker>> workers;

private:
    void start(Worker &worker);
    void check_idle(const Worker &worker) const;

    const std::string shape_; /* RemoteZone::shape */
    ngx_pool_t *pool_;
    std::vector<uint8_t> owners_; /* of slots: the numbers of servers */
    size_t master_ = 0;
};

/* That of the present seed. */
extern Site *site;

} // namespace sim
