
/*
 * Copyright (C) the limit_sliding authors
 */

/* What the files of this directory share. */

#ifndef LIMIT_SLIDING_REDIS_NODE_HPP
#define LIMIT_SLIDING_REDIS_NODE_HPP

#include "ngx/ngx.hpp"
#include "redis/client.hpp"

namespace limit_sliding {

/* Asks a call: more of them gain little, and make others wait for Redis. */

constexpr auto kAsksPerCall = 16;

/* Bytes of a string in a reply, as names of hosts are. */

constexpr auto kReplyString = 256;

/* In place of the slot of keys that have several. */

constexpr auto kMixedSlots = -1;

/* A claim's look of what is given back. */

constexpr auto kLookGiveBack = 2;

/* And of a bucket of which some units are leased. */

constexpr auto kLookLeased = 3;

/* Added to it if units of the key are left here. */

constexpr auto kLookHeld = 4;

/* Nodes that an ask is sent to before it fails. */

constexpr auto kHopsMax = 5;

/* Numbers in a reply. */

constexpr auto kReplyNumbers = 4096;

struct Call;

struct Reply {
    int type;     /* REDIS_REPLY_* */
    ngx_uint_t n; /* elements of an array */
    int64_t numbers[kReplyNumbers];
    Node *map;            /* that of the slots is
                                                      expected, of this node */
    ngx_str_t strings[2]; /* of its first ones */
    u_char string_text[2][kReplyString];
    size_t len; /* of any other */
    u_char text[256];
};

typedef void (*ReplyHandler)(Node *node, Call *call, Reply *reply);

/* A command under way; `handler` is called once, without a reply if it failed
 * on the way. */

struct Call {
    ngx_queue_t queue; /* of the node */
    ngx_msec_t sent;
    uint64_t sent_us;
    void *data; /* the handler's */
    ngx_queue_t asks;
    ngx_uint_t nasks;
    ngx_uint_t nclaims;
    ngx_uint_t numbers;  /* that it returns */
    unsigned whole : 1;  /* sent as EVAL */
    unsigned asking : 1; /* after ASKING */
    unsigned map : 1;    /* asks for that of slots */
    unsigned order : 1;  /* carries one */
    ReplyHandler handler;
};

/* What is asked of one key. */

struct AskPart {
    Claim claim;
    RemoteZone *zone;
    ngx_str_t key;     /* in Redis */
    ngx_int_t slot;    /* of a cluster */
    ngx_uint_t index;  /* among the request's */
    ngx_uint_t leased; /* units of a bucket */
    ngx_uint_t held;   /* of the call: there are
                                                      some left here */
    uint64_t taken_ms; /* of what is given back, */
    uint64_t taken_of; /* see scripts.h */
};

/* A request's claims, and who waits for them.  Is in `due`, in a call, or, if
 * it became due while in a call, in that one until its reply. */

struct Ask {
    ngx_rbtree_node_t node; /* key: what is claimed */
    Redis *redis;
    Node *to;                /* where it is due, or was
                                                      asked */
    ngx_queue_t queue;       /* due, or of a call */
    ngx_queue_t waiters;     /* for the next call */
    ngx_queue_t asked;       /* for the one under way */
    ngx_uint_t units;        /* for the next call, those
                                                      nobody waits for too */
    ngx_uint_t asked_units;  /* of the call under
                                                      way, with these: */
    ngx_uint_t leased_units; /* beyond what is
                                                      waited for */
    ngx_msec_t since;        /* asked first */
    ngx_uint_t hops;         /* since then */
    unsigned in_call : 1;
    unsigned asking : 1; /* at a slot's next node */
    unsigned shared : 1; /* is among redis->asks */
    KeyCommand order;    /* such an ask has one part,
                                                      and a call of its own */
    ngx_str_t value;     /* of the order */
    ngx_int_t slot;      /* of all parts, or
                                              kMixedSlots */

    ngx_uint_t nparts;
    AskPart parts[1];
};

/* What a reply says of an ask. */

struct Answer {
    int64_t granted;
    RemoteState remotes[kClaimsMax];
    unsigned off[kClaimsMax];
    uint32_t own[kClaimsMax];
    /* the key's own limit, or
                                                      LIMIT_SLIDING_OWN_* */
    int64_t forgotten[kClaimsMax];
    /* ms ago, and 1; 0: not */
    unsigned refused; /* still, all who ask */
};

enum class NodeState {
    kClosed = 0,
    kResolving,
    kConnecting,
    kHandshaking,
    kGreeting, /* AUTH, SELECT */
    kReady
};

constexpr auto kAddressesMax = 8;

struct Node {
    Redis *redis;
    Server *server;
    NodeState state;

    ngx_uint_t naddrs;
    ngx_uint_t addr; /* to connect to next */
    ngx_sockaddr_t sockaddrs[kAddressesMax];
    socklen_t socklens[kAddressesMax];

    ngx_uint_t sentinel;  /* to ask next */
    ngx_uint_t tries;     /* of sentinels, by this
                                                      attempt to connect */
    unsigned finding : 1; /* is of a sentinel */
    unsigned found : 1;   /* by this attempt */
    Server master;
    u_char master_text[kReplyString + sizeof(":65535")];
    ngx_sockaddr_t master_addr;
    socklen_t master_socklen;

    ngx_resolver_ctx_t *resolving;
    ngx_peer_connection_t peer;
    void *reader; /* redisReader */
    Reply reply;

    u_char *out; /* to be sent */
    size_t out_sent;
    size_t out_last;
    size_t out_size;

    ngx_queue_t due; /* asks */
    ngx_uint_t ndue;
    ngx_event_t flush; /* posted */

    ngx_queue_t calls; /* in order of sending */
    ngx_uint_t ncalls;
    ngx_event_t timer;    /* of connecting, then of
                                                      the oldest call */
    ngx_uint_t greetings; /* to be answered */
    char *broken;         /* why, NULL if not */
    ngx_uint_t answered;  /* since it failed last */
    ngx_uint_t failures;  /* in a row */
    ngx_msec_t retry_at;

    ngx_queue_t queue; /* of the cluster */
    unsigned seed : 1;
    unsigned mapped : 1; /* has slots */
};

/* field */
char *redis_field(ngx_conf_t *cf, ngx_command_t *dummy, void *conf);
char *duplicate(ngx_conf_t *cf, ngx_str_t *value);

/* password */
char *set_password_file(ngx_conf_t *cf, ngx_str_t *value, void *field);

/* node */
Node *node_create(Redis *redis, Server *server);
ngx_int_t node_open(Node *node);
void node_set_server(Node *node, Server *server);
ngx_uint_t node_is_usable(Node *node);
void node_ready(Node *node);
void node_fail(Node *node, ngx_err_t err, char *reason);
void node_leave(Node *node);
void node_close(Node *node);

void node_rest(Node *node);

/* io */
ngx_int_t node_command(Node *node, Call *call, int argc, const char **argv,
                       const size_t *argvlen);
void node_send(Node *node);
void node_read_handler(ngx_event_t *rev);
void node_write_handler(ngx_event_t *wev);
void node_blame(Node *node, Reply *reply);

/* sentinel */
void node_find(Node *node);
ngx_uint_t node_may_find(Node *node);
void node_ask_master(Node *node);
void node_turn_to_master(Node *node);
void watch_sentinels(Redis *redis);
char *sentinel_text(Node *node, Reply *reply);

ngx_int_t node_set_address(Node *node, ngx_str_t *host, ngx_int_t port);
void node_use_address(Node *node);

void node_host(Node *node, ngx_str_t *host);

/* connect */
void node_resolve(Node *node);
void node_greet(Node *node);
ngx_int_t node_greeting(Node *node, int argc, ngx_str_t *args,
                        ReplyHandler handler);
void node_disconnect(Node *node);

/* ssl */
char *redis_ssl(ngx_conf_t *cf, Redis *redis);
void node_handshake(Node *node);

/* reply */
void *reader_create(Reply *reply);
void reader_free(void *reader);
ngx_int_t reader_feed(void *reader, u_char *data, size_t len);
ngx_int_t reader_next(void *reader);
char *reply_text(Reply *reply);

/* ask */
u_char *write_key(Redis *redis, RemoteClaim *remote, u_char *p);
Ask *find_ask(Redis *redis, uint64_t hash);
Ask *create_ask(Redis *redis, Claim *claims, ngx_uint_t nclaims);
Ask *alloc_ask(Redis *redis, ngx_uint_t nparts, size_t len);
void share_ask(Ask *ask, uint64_t hash);

/* due */
void flush_handler(ngx_event_t *ev);
void make_due(Ask *ask, Node *to);
void fail_due(Node *node);

/* wait */
void join_ask(Redis *redis, Ask *ask, Waiter *waiter);
void tell_waiter(Waiter *waiter, Told told);
void fail_waiters(ngx_queue_t *waiters);
void deadline_handler(ngx_event_t *ev);

/* tell */
void answered(Node *node, Call *call, Reply *reply);
void call_failed(Node *node, Call *call);
void add_refusal(RemoteZone *zone, Claim *claim, Verdict *verdict,
                 ngx_msec_t asked);
void ask_done(Redis *redis, Ask *ask);

/* script */
ngx_int_t redis_script(ngx_conf_t *cf, Redis *redis);
ngx_uint_t call_fits(Call *call, Ask *ask);
ngx_int_t call_script(Node *node, Call *call);

/* order */
ngx_int_t call_order(Node *node, Call *call);

/* lease */
ngx_uint_t lease_ask(Ask *ask);
void lease_add(Ask *ask, Answer *answer, ngx_msec_t sent);
void lease_waiters(Ask *ask);

/* answer */
ngx_uint_t call_is_answered(Call *call, Reply *reply);
int64_t *read_answer(Ask *ask, uint64_t now_ms, int64_t *number,
                     Answer *answer);
void describe_part(Ask *ask, Answer *answer, ngx_uint_t i, uint32_t before,
                   ngx_uint_t admitted, Verdict *verdict);

/* traffic */
uint64_t redis_us(void);
void redis_count(Redis *redis, Call *call);

/* redis */
ngx_int_t redis_start(Redis *redis);
void redis_succeeded(Node *node);
void redis_failed(Node *node);
void ngx_cdecl redis_log(Redis *redis, ngx_err_t err, const char *fmt, ...);

} // namespace limit_sliding

#endif
