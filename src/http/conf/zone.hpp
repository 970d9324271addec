/* Copyright (C) the limit_sliding authors */

/* The zones of a configuration. */

#pragma once

#include <algorithm>
#include <string_view>

#include "core/facts/offenders.hpp"
#include "core/limiter/zone_memory.hpp"
#include "core/policy/policy.hpp"
#include "core/policy/statistics.hpp"
#include "http/values/expression.hpp"
#include "ngx/array.hpp"
#include "ngx/conf.hpp"
#include "ngx/ngx.hpp"
#include "redis/calls/client.hpp"

struct ngx_thread_pool_s;

namespace limit_sliding {

enum class KeyKind {
    kTexts = 0,
    kAddresses, /* $binary_remote_addr */
    kClients    /* $limit_sliding_client */
};

/* The parts of a zone that lie in shared memory. */
struct SharedZone {
    Zone *table;
    ZoneMemory aside;
};

struct LimitQueue;
struct ZoneConf;

/* Lines of one kind in the log of this worker, of which "every=" leaves some out. */
struct LogPace {
    ngx_msec_t after;   /* the time from which on the next line is due */
    ngx_uint_t omitted; /* lines left out since the last one */
};

/* The parts of a zone that belong to this worker. */
struct ZoneWorker {
    Statistics *counters; /* in shared memory, but only this worker's */
    Sampler sampler;      /* of rejections */
    Sampler top_sampler;  /* of those of offenders, if keys may be banned */
    LogPace decisions;    /* rejections and delays */
    LogPace bad_values;   /* a pace of their own, as a client must not hide its rejections */
    LimitQueue *orders;   /* nullptr: there were none */
};

/* The longest prefixes that any place cuts clients to, in bits.  The API looks
 * for a client by them, as it is asked from elsewhere. */
struct ZoneClients {
    bool known;
    ngx_uint_t ipv4;
    ngx_uint_t ipv6;
};

/* The memory that a zone orders from NGINX. */
struct OrderedMemory {
    ngx_shm_zone_t *shm_zone; /* nullptr: the zone is named, but not defined */
    const ZoneConf *former;   /* of the last cycle, while this one is made */
    ngx_str_t restarted;      /* why a reload empties it; empty: it does not */
};

/* The overrides of a zone's keys, and their file. */
struct LimitsFile {
    size_t max;                            /* keys that there is memory for */
    ngx_str_t path;                        /* empty: it has no name */
    ngx_fd_t fd = NGX_INVALID_FILE;        /* invalid: there is none */
    ngx_fd_t former_fd = NGX_INVALID_FILE; /* that of the last cycle, until that ends */
    ngx_thread_pool_s *pool;               /* for orders; nullptr: there are none */
};

/* What becomes of keys that are rejected. */
struct RejectedKeys {
    bool top;            /* those rejected most are counted */
    bool are_watched;    /* they are counted, or banned */
    PenaltyRule penalty; /* when they are banned */

    bool are_banned() const { return penalty.penalty_ms != 0; }
};

/* A zone as this configuration defines it; lives as long as its cycle. */
struct ZoneConf {
    ngx_str_t name;
    ngx_str_t quoted; /* the name as a string of a header field */
    FileLine where;   /* of the first mention */
    size_t size;      /* of the shared memory, in bytes, but for that of overrides */

    Expression key;
    KeyKind keys;
    Policy policy;
    uint64_t limit;   /* 0: rate is a variable */
    Expression *rate; /* nullptr: limit is static */
    ngx_str_t rate_text;
    bool variable; /* rates of some places are variables */
    bool may_owe;  /* its keys need debts */
    LimitsFile limits;
    RejectedKeys rejected;
    ZoneClients clients;

    Redis *redis; /* nullptr: this node decides */
    RemoteZone remote;

    /* Returns the largest limit that a key may have. */
    uint64_t limit_max() const { return policy.limit_max(redis != nullptr && remote.sync_ms == 0); }

    /* Returns a limit for looks at all keys, although the limits of keys may differ. */
    uint64_t any_limit() const { return std::clamp(limit, uint64_t{1}, policy.limit_max()); }

    OrderedMemory ordered;
    SharedZone memory;
    ZoneWorker worker;
};

using Zones = Array<ZoneConf *>;

/* Words of the configuration by Algorithm. */
constexpr size_t kAlgorithms = 5;
extern const ngx_str_t algorithm_names[kAlgorithms];

/* Returns the zone of this name; nullptr: there is none. */
ZoneConf *find_zone(const Zones &zones, std::string_view name);

/* Returns the zone of this name, after adding it if there is none: places may
 * mention a zone before it is defined.  nullptr: no memory. */
ZoneConf *get_zone(ngx_conf_t *cf, Zones &zones, const ngx_str_t &name);

/* Orders the zones' memory from NGINX once all are parsed, and decides which are to have
 * that of the last cycle.  Logs what is wrong, and returns false. */
bool init_zones(ngx_conf_t *cf, const Zones &zones);

/* Empties and logs what has to be once the new configuration is in use. */
void enter_memory(ngx_log_t *log, const ZoneConf &zone);

/* Gives this worker counters of its own in the memory. */
void take_statistics(ZoneConf &zone);

} // namespace limit_sliding
