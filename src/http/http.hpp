
/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_HTTP_HTTP_HPP
#define LIMIT_SLIDING_HTTP_HTTP_HPP

#include "ngx/ngx.hpp"
extern "C" {
#include "http/ngx_http_limit_sliding_module.h"
}

#include "core/limiter.hpp"
#include "core/stats.hpp"
#include "redis/client.hpp"

namespace limit_sliding {

#if (NGX_PTR_SIZE < 8)
#error "limit_sliding needs a 64-bit platform"
#endif

/* LocConf.headers */

constexpr auto kHeaderRetryAfter = 0x01;
constexpr auto kHeaderDraft = 0x02;
constexpr auto kHeaderX = 0x04;

/* A character of a variable's name. */

#define is_word(ch)                                                            \
    (((ch) >= 'a' && (ch) <= 'z') || ((ch) >= 'A' && (ch) <= 'Z')              \
     || ((ch) >= '0' && (ch) <= '9') || (ch) == '_')

/* A list member in a header, but for its name: with two numbers. */

constexpr auto kMember = sizeof(";q=;w=, ") + 2 * NGX_INT64_LEN;

/* Prefixes of $limit_sliding_client by default. */

constexpr auto kIpv4Prefix = 32;
constexpr auto kIpv6Prefix = 64;

/* Text, variables and their combination. */

struct Expression {
    ngx_http_complex_value_t complex;
    ngx_int_t index; /* of the variable that is
                                                    all of it, or NGX_ERROR */
};

/* What the keys of a zone are. */

enum class KeyKind {
    kTexts = 0,
    kAddresses, /* $binary_remote_addr */
    kClients    /* $limit_sliding_client */
};

/* A zone as this configuration defines it; lives as long as its cycle. */

struct ZoneConf {
    ngx_str_t name;
    ngx_str_t quoted; /* for a header */
    Expression key;
    Policy policy;
    uint32_t limit;   /* 0: rate is a variable */
    Expression *rate; /* NULL: limit is static */
    ngx_str_t rate_text;
    ngx_flag_t top;
    KeyKind keys;
    ngx_flag_t variable; /* rates of some places are */

    ngx_shm_zone_t *shm_zone; /* NULL: named, not defined */
    Zone *zone;               /* in shared memory */
    Aside aside;              /* there, too */

    u_char *file; /* of the first mention */
    ngx_uint_t line;

    Redis *redis; /* NULL: of one node */
    RemoteZone remote;

    ngx_str_t restarted; /* why a reload empties it */

    /* the longest prefixes that any place cuts clients to, for the API */
    ngx_uint_t client_ipv4;
    ngx_uint_t client_ipv6;
    unsigned clients : 1; /* they are known */

    /* this worker's */
    Counters *counters;
    Sampler sampler;
    ngx_msec_t log_after;
    ngx_uint_t log_omitted;
};

struct StatusRange {
    ngx_uint_t from;
    ngx_uint_t to;
};

/* A limit_sliding directive. */

struct Limit {
    ZoneConf *zone;
    uint32_t limit; /* 0: none that is static */
    uint32_t cost;

    unsigned evaluated : 1; /* some of these are set */
    unsigned dry_run : 1;
    unsigned after_auth : 1;

    Expression *rates[3]; /* the limit's, the zone's;
                                                    ends with NULL */
    Expression *cost_value;
    ngx_array_t *count_status;

    ngx_str_t policy; /* of the static limit, for
                                                    header fields */
    ngx_str_t digits;

    /* the static rate, until zones are known */
    Rate rate; /* of count 0: not given */
    ngx_str_t rate_word;
    u_char *file;
    ngx_uint_t line;
};

enum Stage { kBeforeAuth = 0, kAfterAuth, kStages };

/*
 * Limits that are decided together, all or nothing: the enforced ones of a
 * stage, or, next to them, those in dry run.
 */

struct Group;

struct Group {
    Limit *limits;
    ngx_uint_t nlimits;
    ngx_uint_t nclaims;  /* of the next ones, too */
    unsigned single : 1; /* one enforced limit is all */
    unsigned dry_run : 1;
    unsigned leaky : 1;  /* some may delay */
    unsigned remote : 1; /* the last ones are of one
                                                    Redis */
    Group *next;
};

/* The limits of one place of the configuration. */

struct LimitSet {
    ngx_array_t limits;

    /* by limit_sliding_dry_run; the first of a stage, or NULL */
    Group *groups[2][kStages];
};

struct MainConf {
    ngx_array_t zones;   /* of pointers to zones */
    ngx_array_t sets;    /* of pointers to sets */
    ngx_array_t redises; /* of pointers to them */

    /* used anywhere */
    unsigned after_auth : 1;
    unsigned count_status : 1;
    unsigned header_filter : 1;
};

struct LocConf {
    LimitSet *set; /* NULL: off */
    Group *groups[kStages];
    ngx_uint_t status_code;
    ngx_uint_t log_level; /* 0: off */
    ngx_msec_t log_every;
    ngx_flag_t dry_run;
    ngx_uint_t headers;
    ngx_uint_t client_ipv4; /* prefix, in bits */
    ngx_uint_t client_ipv6;
    ngx_flag_t api_write; /* unset: no API here */
};

/* In this order: of several limits of a request the last one prevails. */

enum class Status {
    kPassed = 0,
    kDelayedDryRun,
    kDelayed,
    kRejectedDryRun,
    kRejected
};

/* A request that waits for a Redis, and what it goes on with. */

struct RemoteWait {
    Waiter waiter;
    ngx_http_request_t *request; /* NULL: never waited */
    Redis *redis;
    ngx_uint_t nlocal;
    ngx_uint_t nremote;
    Group *group; /* NULL: does not wait */
    ngx_msec_t delay;
};

/*
 * What was decided for a request: every limit once, however often the request
 * is redirected.  It outlives r->ctx in a cleanup record of the request's
 * pool.  A claim's data is its Limit, its remote an
 * RemoteClaim, or NULL in a zone of one node.
 */

struct Context {
    ngx_pool_cleanup_t cleanup;
    Status status;
    uint32_t waiting;   /* suspended, to be resumed */
    ngx_uint_t nclaims; /* 0: nothing accounted, and
                                                    the rest is not set */
    ngx_uint_t headers; /* where it was decided */
    uint64_t now_ms;
    RemoteWait *wait; /* NULL: none so far */
    Claim *described;
    Claim claims[1];
};

/*
 * A parameter of a directive: `name` is "zone=", `word` "zone=one:1m"; of one
 * without a value both are "dry_run".
 */

struct Param {
    ngx_str_t name;
    ngx_str_t word;
    ngx_str_t value;
};

/* conf */
char *parse_params(ngx_conf_t *cf, ngx_uint_t i, Param *params);

/* value */
char *compile_expression(ngx_conf_t *cf, ngx_str_t *text, Expression *value);
char *rate_value(ngx_conf_t *cf, Param *param, Expression **value, Rate *rate);
ngx_int_t rate_limit(ngx_conf_t *cf, ngx_str_t *word, Rate *rate,
                     uint64_t window_ms, uint32_t *limit, u_char *file,
                     ngx_uint_t line);
ngx_int_t parse_rate(ngx_str_t *text, uint64_t window_ms, uint32_t *limit);
ngx_int_t evaluate_claim(ngx_http_request_t *r, Limit *limit, Claim *claim);

/* zone conf */

/* algorithm */
char *set_algorithm(ngx_conf_t *cf, ZoneConf *zone, Param *param,
                    Param *precision, Param *burst);
ngx_str_t *algorithm_name(Algorithm algorithm);

/* zone */
ZoneConf *get_zone(ngx_conf_t *cf, ngx_str_t *name);
ngx_int_t add_zone(ngx_conf_t *cf, ZoneConf *zone, size_t size);
ngx_int_t init_zones(ngx_conf_t *cf, MainConf *lsmcf);

/* reuse */
ngx_int_t reuse_zone(ngx_conf_t *cf, ZoneConf *zone);

extern ngx_uint_t zone_tags[2];

/* redis conf */
char *zone_redis(ngx_conf_t *cf, ZoneConf *zone, Param *param);
char *zone_lease(ngx_conf_t *cf, ZoneConf *zone, Param *param);
ngx_int_t init_redises(ngx_conf_t *cf, MainConf *lsmcf);
void enter_redises(MainConf *lsmcf);

/* limit conf */

/* set */
ngx_int_t init_sets(ngx_conf_t *cf, MainConf *lsmcf);

/* handler */
ngx_int_t access_handler(ngx_http_request_t *r);
ngx_int_t after_auth_handler(ngx_http_request_t *r);

ngx_int_t decided(Context *ctx, ngx_uint_t n, Claim *claim);

/* remote */
ngx_int_t add_remote(ngx_http_request_t *r, Claim *claim, RemoteZone *zone,
                     ngx_str_t *key);
ngx_int_t decide_remote(ngx_http_request_t *r, Context *ctx, ngx_uint_t n);
ngx_int_t conclude(Context *ctx);

/* refusal */
ngx_int_t refuse(ngx_http_request_t *r, Context *ctx, ngx_uint_t nlocal,
                 ngx_uint_t nremote);
ngx_int_t refuse_local(ngx_http_request_t *r, Context *ctx, ngx_uint_t nlocal,
                       ngx_uint_t nremote);

/* apply */
ngx_int_t reject(ngx_http_request_t *r, LocConf *lscf, Context *ctx);
void would_reject(ngx_http_request_t *r, LocConf *lscf, Context *ctx);
void one_retry_after(ngx_http_request_t *r);

/* stats */
void init_counters(MainConf *lsmcf);
void account(ngx_http_request_t *r, Context *ctx, ngx_uint_t first,
             ngx_uint_t rejected);
void add_offender(ngx_http_request_t *r, Claim *claim);
ngx_int_t own_limit(Claim *claim, Overrides *own);

/* delay */
ngx_msec_t queue_delay_ms(ngx_http_request_t *r, LocConf *lscf, Context *ctx,
                          ngx_uint_t first);
ngx_int_t suspend(ngx_http_request_t *r, Context *ctx, ngx_msec_t delay);
void continue_request(ngx_http_request_t *r);

/* count */
char *count_status(ngx_conf_t *cf, Limit *limit, Param *param);
ngx_int_t count_handler(ngx_http_request_t *r);

/* headers */
void init_headers(void);
ngx_int_t push_header(ngx_http_request_t *r, char *name, size_t len,
                      ngx_str_t *value);
u_char *append_number(u_char *p, uint64_t n, ngx_str_t *text);
ngx_int_t init_fields(ngx_pool_t *pool, Limit *limit);

/* client */
ngx_int_t client_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                          uintptr_t data);
void learn_prefixes(ngx_conf_t *cf, LocConf *conf);
ngx_uint_t client_part(ngx_str_t *address, ngx_uint_t ipv4, ngx_uint_t ipv6);
void cut_to_prefix(u_char *dst, ngx_str_t *address, ngx_uint_t prefix);

/* log */
ngx_int_t init_log(ngx_conf_t *cf);
void log_rejected(ngx_http_request_t *r, LocConf *lscf, Context *ctx);
void log_delayed(ngx_http_request_t *r, LocConf *lscf, Claim *claim,
                 uint64_t now_ms);
void log_long_key(ngx_http_request_t *r, ZoneConf *zone, ngx_str_t key);
void log_bad_value(ngx_http_request_t *r, ZoneConf *zone, char *name,
                   ngx_str_t *value);

/* variables */
ngx_int_t add_variables(ngx_conf_t *cf);

extern ngx_str_t source_names[];

/* api */
ngx_uint_t merge_api(ngx_conf_t *cf, LocConf *prev, LocConf *conf);

} // namespace limit_sliding

#endif
