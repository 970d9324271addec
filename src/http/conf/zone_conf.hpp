/* Copyright (C) the limit_sliding authors */

/* The zones of a configuration. */

#pragma once

#include <algorithm>
#include <string_view>

#include "core/facts/offenders.hpp"
#include "core/limiter/zone_memory.hpp"
#include "core/policy/policy.hpp"
#include "http/conf/zone_worker.hpp"
#include "http/values/expression.hpp"
#include "ngx/conf.hpp"
#include "ngx/ngx.hpp"
#include "redis/decisions/client.hpp"

struct ngx_thread_pool_s;

namespace limit_sliding {

enum class KeyKind {
    kTexts = 0,
    kAddresses, /* $binary_remote_addr */
    kClients    /* $limit_sliding_client */
};

/* The parts of a zone in shared memory. */
struct SharedZone {
    Zone *table;
    ZoneMemory aside;
};

/* The longest prefixes of $limit_sliding_client in all locations, in bits; not set unless
 * `known`.  The API, in another location, uses them to find the key of a client. */
struct ZoneClients {
    bool known;
    ngx_uint_t ipv4;
    ngx_uint_t ipv6;
};

/* The file with the overrides of a zone's keys. */
struct OverrideFile {
    size_t max;                     /* overrides that fit into the memory */
    ngx_str_t path;                 /* empty: the file has no name */
    ngx_fd_t fd = NGX_INVALID_FILE; /* NGX_INVALID_FILE: not open */
    ngx_thread_pool_s *pool;        /* runs API writes; nullptr: the worker runs them */
};

/* The consequences of rejections for a key. */
struct RejectedKeys {
    bool top;            /* the most rejected keys are listed */
    bool are_watched;    /* rejections are counted, for `top` or for bans */
    PenaltyRule penalty; /* when and for how long keys are banned */

    bool are_banned() const { return penalty.penalty_ms != 0; }
};

/* A zone as this configuration defines it.  Lives as long as its cycle. */
struct ZoneConf {
    ngx_str_t name;
    ngx_str_t quoted; /* the name as a string of a header field */
    FileLine where;   /* the definition; until it is parsed, the first mention */
    size_t size;      /* bytes of the shared memory without the overrides */

    Expression key;
    KeyKind keys;
    Policy policy;
    uint64_t limit;   /* static limit in requests a window; 0: `rate` is a variable */
    Expression *rate; /* "rate=" or "inflight="; nullptr: the limit is static */
    ngx_str_t rate_text;
    bool variable; /* some rate is evaluated for each request */
    bool may_owe;  /* keys may owe, so the memory has a table of debts */
    OverrideFile override_file;
    RejectedKeys rejected;
    ZoneClients clients;

    RemoteZone remote; /* without a Redis if this node's memory decides */

    bool is_remote() const { return remote.redis != nullptr; }

    /* Returns the largest limit that a key may have. */
    uint64_t limit_max() const { return policy.limit_max(is_remote() && remote.sync_ms == 0); }

    /* Returns a limit for walks over all keys, although the keys may have other limits. */
    uint64_t any_limit() const { return std::clamp(limit, uint64_t{1}, policy.limit_max()); }

    const ZoneConf *former; /* the zone in the last cycle, until this cycle is in use */
    ngx_str_t restarted;    /* reason why a reload empties the zone; empty: it does not */
    SharedZone memory;
    ZoneWorker worker;
};

/* Names of algorithms, by Algorithm.  The last one is no value of "algorithm=". */
constexpr size_t kAlgorithms = 6;
extern const ngx_str_t algorithm_names[kAlgorithms];

/* Returns the zone of this name, or nullptr. */
ZoneConf *find_zone(const Zones &zones, std::string_view name);

/* Returns the zone of this name, and adds the zone if there is none: limits may mention a zone
 * before its definition.  Returns nullptr if there is no memory. */
ZoneConf *get_zone(ngx_conf_t *cf, Zones &zones, const ngx_str_t &name);

/* Requests the memory of all zones from NGINX once all are parsed, and decides which zones keep
 * the memory of the last cycle.  Logs an error and returns false if a zone is invalid. */
bool init_zones(ngx_conf_t *cf, const Zones &zones);

/* Prints the first difference that gives old states another meaning, up to `last`.  Returns the
 * end of the text; `p` if there is none. */
u_char *print_difference(u_char *p, u_char *last, const ZoneConf &zone, const ZoneConf &old);

/* Logs that a zone starts empty, so that all clients have their whole limit again, or that its keys
 * have other names in Redis. */
void tell_changes(ngx_log_t &log, const ZoneConf &zone);

/* Logs what a reload changes of the zone, and follows steps of UTC, once the configuration is in
 * use. */
void enter_memory(ngx_log_t *log, const ZoneConf &zone);

/* Logs which zones of the last cycle are not configured any more, if their keys may have had their
 * own limits. */
void tell_gone_zones(ngx_cycle_t &cycle, const Zones &zones);

} // namespace limit_sliding
