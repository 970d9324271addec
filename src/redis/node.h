
/*
 * Copyright (C) the limit_sliding authors
 */


/* What the files of this directory share. */


#ifndef _NGX_HTTP_LIMIT_SLIDING_REDIS_NODE_H_INCLUDED_
#define _NGX_HTTP_LIMIT_SLIDING_REDIS_NODE_H_INCLUDED_


#include "redis/client.h"


/* Asks a call: more of them gain little, and make others wait for Redis. */

#define NGX_HTTP_LIMIT_SLIDING_ASKS     16

/* Bytes of a string in a reply, as names of hosts are. */

#define NGX_HTTP_LIMIT_SLIDING_STRING   256

/* In place of the slot of keys that have several. */

#define NGX_HTTP_LIMIT_SLIDING_MIXED    -1

/* A claim's look of what is given back. */

#define NGX_HTTP_LIMIT_SLIDING_GIVE_BACK  2

/* And of a bucket of which some units are leased. */

#define NGX_HTTP_LIMIT_SLIDING_LEASED     3

/* Added to it if units of the key are left here. */

#define NGX_HTTP_LIMIT_SLIDING_HELD       4

/* Nodes that an ask is sent to before it fails. */

#define NGX_HTTP_LIMIT_SLIDING_HOPS     5

/* Numbers in a reply. */

#define NGX_HTTP_LIMIT_SLIDING_NUMBERS  4096


typedef struct ngx_http_limit_sliding_call_s   ngx_http_limit_sliding_call_t;


typedef struct {
    int                                  type;     /* REDIS_REPLY_* */
    ngx_uint_t                           n;        /* elements of an array */
    int64_t                              numbers[
                                             NGX_HTTP_LIMIT_SLIDING_NUMBERS];
    ngx_http_limit_sliding_node_t       *map;      /* that of the slots is
                                                      expected, of this node */
    ngx_str_t                            strings[2];   /* of its first ones */
    u_char                               string_text[2][
                                                NGX_HTTP_LIMIT_SLIDING_STRING];
    size_t                               len;      /* of any other */
    u_char                               text[256];
} ngx_http_limit_sliding_reply_t;


typedef void (*ngx_http_limit_sliding_reply_handler_pt)(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);


/* A command under way; `handler` is called once, without a reply if it failed
 * on the way. */

struct ngx_http_limit_sliding_call_s {
    ngx_queue_t                          queue;    /* of the node */
    ngx_msec_t                           sent;
    uint64_t                             sent_us;
    void                                *data;     /* the handler's */
    ngx_queue_t                          asks;
    ngx_uint_t                           nasks;
    ngx_uint_t                           nclaims;
    ngx_uint_t                           numbers;  /* that it returns */
    unsigned                             whole:1;  /* sent as EVAL */
    unsigned                             asking:1; /* after ASKING */
    unsigned                             map:1;    /* asks for that of slots */
    unsigned                             order:1;  /* carries one */
    ngx_http_limit_sliding_reply_handler_pt
                                         handler;
};


/* What is asked of one key. */

typedef struct {
    limit_sliding_claim_t                claim;
    ngx_http_limit_sliding_remote_zone_t *zone;
    ngx_str_t                            key;      /* in Redis */
    ngx_int_t                            slot;     /* of a cluster */
    ngx_uint_t                           index;    /* among the request's */
    ngx_uint_t                           leased;   /* units of a bucket */
    ngx_uint_t                           held;     /* of the call: there are
                                                      some left here */
    uint64_t                             taken_ms; /* of what is given back, */
    uint64_t                             taken_of; /* see scripts.h */
} ngx_http_limit_sliding_part_t;


/* A request's claims, and who waits for them.  Is in `due`, in a call, or, if
 * it became due while in a call, in that one until its reply. */

struct ngx_http_limit_sliding_ask_s {
    ngx_rbtree_node_t                    node;     /* key: what is claimed */
    ngx_http_limit_sliding_redis_t      *redis;
    ngx_http_limit_sliding_node_t       *to;       /* where it is due, or was
                                                      asked */
    ngx_queue_t                          queue;    /* due, or of a call */
    ngx_queue_t                          waiters;  /* for the next call */
    ngx_queue_t                          asked;    /* for the one under way */
    ngx_uint_t                           units;    /* for the next call, those
                                                      nobody waits for too */
    ngx_uint_t                           asked_units;  /* of the call under
                                                      way, with these: */
    ngx_uint_t                           leased_units; /* beyond what is
                                                      waited for */
    ngx_msec_t                           since;    /* asked first */
    ngx_uint_t                           hops;     /* since then */
    unsigned                             in_call:1;
    unsigned                             asking:1; /* at a slot's next node */
    unsigned                             shared:1; /* is among redis->asks */
    ngx_http_limit_sliding_order_e       order;    /* such an ask has one part,
                                                      and a call of its own */
    ngx_str_t                            value;    /* of the order */
    ngx_int_t                            slot;     /* of all parts, or
                                              NGX_HTTP_LIMIT_SLIDING_MIXED */

    ngx_uint_t                           nparts;
    ngx_http_limit_sliding_part_t        parts[1];
};


/* What a reply says of an ask. */

typedef struct {
    int64_t                  granted;
    limit_sliding_remote_t   remotes[NGX_HTTP_LIMIT_SLIDING_CLAIMS];
    unsigned                 off[NGX_HTTP_LIMIT_SLIDING_CLAIMS];
    uint32_t                 own[NGX_HTTP_LIMIT_SLIDING_CLAIMS];
                                                   /* the key's own limit, or
                                                      LIMIT_SLIDING_OWN_* */
    int64_t                  forgotten[NGX_HTTP_LIMIT_SLIDING_CLAIMS];
                                                   /* ms ago, and 1; 0: not */
    unsigned                 refused;              /* still, all who ask */
} ngx_http_limit_sliding_answer_t;


typedef enum {
    NGX_HTTP_LIMIT_SLIDING_CLOSED = 0,
    NGX_HTTP_LIMIT_SLIDING_RESOLVING,
    NGX_HTTP_LIMIT_SLIDING_CONNECTING,
    NGX_HTTP_LIMIT_SLIDING_HANDSHAKING,
    NGX_HTTP_LIMIT_SLIDING_GREETING,           /* AUTH, SELECT */
    NGX_HTTP_LIMIT_SLIDING_READY
} ngx_http_limit_sliding_node_state_e;


#define NGX_HTTP_LIMIT_SLIDING_ADDRS  8

struct ngx_http_limit_sliding_node_s {
    ngx_http_limit_sliding_redis_t      *redis;
    ngx_http_limit_sliding_server_t     *server;
    ngx_http_limit_sliding_node_state_e  state;

    ngx_uint_t                           naddrs;
    ngx_uint_t                           addr;     /* to connect to next */
    ngx_sockaddr_t                       sockaddrs[
                                               NGX_HTTP_LIMIT_SLIDING_ADDRS];
    socklen_t                            socklens[
                                               NGX_HTTP_LIMIT_SLIDING_ADDRS];

    ngx_uint_t                           sentinel; /* to ask next */
    ngx_uint_t                           tries;    /* of sentinels, by this
                                                      attempt to connect */
    unsigned                             finding:1;    /* is of a sentinel */
    unsigned                             found:1;  /* by this attempt */
    ngx_http_limit_sliding_server_t      master;
    u_char                               master_text[
                                                NGX_HTTP_LIMIT_SLIDING_STRING
                                                + sizeof(":65535")];
    ngx_sockaddr_t                       master_addr;
    socklen_t                            master_socklen;

    ngx_resolver_ctx_t                  *resolving;
    ngx_peer_connection_t                peer;
    void                                *reader;   /* redisReader */
    ngx_http_limit_sliding_reply_t       reply;

    u_char                              *out;      /* to be sent */
    size_t                               out_sent;
    size_t                               out_last;
    size_t                               out_size;

    ngx_queue_t                          due;      /* asks */
    ngx_uint_t                           ndue;
    ngx_event_t                          flush;    /* posted */

    ngx_queue_t                          calls;    /* in order of sending */
    ngx_uint_t                           ncalls;
    ngx_event_t                          timer;    /* of connecting, then of
                                                      the oldest call */
    ngx_uint_t                           greetings;    /* to be answered */
    char                                *broken;   /* why, NULL if not */
    ngx_uint_t                           answered; /* since it failed last */
    ngx_uint_t                           failures; /* in a row */
    ngx_msec_t                           retry_at;

    ngx_queue_t                          queue;    /* of the cluster */
    unsigned                             seed:1;
    unsigned                             mapped:1; /* has slots */
};


/* field */
char *ngx_http_limit_sliding_redis_field(ngx_conf_t *cf,
    ngx_command_t *dummy, void *conf);
char *ngx_http_limit_sliding_duplicate(ngx_conf_t *cf, ngx_str_t *value);

/* password */
char *ngx_http_limit_sliding_set_password_file(ngx_conf_t *cf,
    ngx_str_t *value, void *field);

/* node */
ngx_http_limit_sliding_node_t *ngx_http_limit_sliding_node_create(
    ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_server_t *server);
ngx_int_t ngx_http_limit_sliding_node_open(
    ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_node_set_server(
    ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_server_t *server);
ngx_uint_t ngx_http_limit_sliding_node_is_usable(
    ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_node_ready(ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_node_fail(ngx_http_limit_sliding_node_t *node,
    ngx_err_t err, char *reason);
void ngx_http_limit_sliding_node_leave(ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_node_close(ngx_http_limit_sliding_node_t *node);

void ngx_http_limit_sliding_node_rest(ngx_http_limit_sliding_node_t *node);

/* io */
ngx_int_t ngx_http_limit_sliding_node_command(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call,
    int argc, const char **argv, const size_t *argvlen);
void ngx_http_limit_sliding_node_send(ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_node_read_handler(ngx_event_t *rev);
void ngx_http_limit_sliding_node_write_handler(ngx_event_t *wev);
void ngx_http_limit_sliding_node_blame(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_reply_t *reply);

/* sentinel */
void ngx_http_limit_sliding_node_find(ngx_http_limit_sliding_node_t *node);
ngx_uint_t ngx_http_limit_sliding_node_may_find(
    ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_node_ask_master(
    ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_node_turn_to_master(
    ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_watch(ngx_http_limit_sliding_redis_t *redis);
char *ngx_http_limit_sliding_sentinel_text(
    ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_reply_t *reply);

ngx_int_t ngx_http_limit_sliding_node_set_address(
    ngx_http_limit_sliding_node_t *node, ngx_str_t *host, ngx_int_t port);
void ngx_http_limit_sliding_node_use_address(
    ngx_http_limit_sliding_node_t *node);

void ngx_http_limit_sliding_node_host(ngx_http_limit_sliding_node_t *node,
    ngx_str_t *host);

/* connect */
void ngx_http_limit_sliding_node_resolve(
    ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_node_greet(ngx_http_limit_sliding_node_t *node);
ngx_int_t ngx_http_limit_sliding_node_greeting(
    ngx_http_limit_sliding_node_t *node, int argc, ngx_str_t *args,
    ngx_http_limit_sliding_reply_handler_pt handler);
void ngx_http_limit_sliding_node_disconnect(
    ngx_http_limit_sliding_node_t *node);

/* ssl */
char *ngx_http_limit_sliding_redis_ssl(ngx_conf_t *cf,
    ngx_http_limit_sliding_redis_t *redis);
void ngx_http_limit_sliding_node_handshake(
    ngx_http_limit_sliding_node_t *node);

/* reply */
void *ngx_http_limit_sliding_reader_create(
    ngx_http_limit_sliding_reply_t *reply);
void ngx_http_limit_sliding_reader_free(void *reader);
ngx_int_t ngx_http_limit_sliding_reader_feed(void *reader, u_char *data,
    size_t len);
ngx_int_t ngx_http_limit_sliding_reader_next(void *reader);
char *ngx_http_limit_sliding_reply_text(
    ngx_http_limit_sliding_reply_t *reply);

/* ask */
u_char *ngx_http_limit_sliding_write_key(
    ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_remote_t *remote, u_char *p);
ngx_http_limit_sliding_ask_t *ngx_http_limit_sliding_find_ask(
    ngx_http_limit_sliding_redis_t *redis, uint64_t hash);
ngx_http_limit_sliding_ask_t *ngx_http_limit_sliding_create_ask(
    ngx_http_limit_sliding_redis_t *redis, limit_sliding_claim_t *claims,
    ngx_uint_t nclaims);
ngx_http_limit_sliding_ask_t *ngx_http_limit_sliding_alloc_ask(
    ngx_http_limit_sliding_redis_t *redis, ngx_uint_t nparts, size_t len);
void ngx_http_limit_sliding_share_ask(ngx_http_limit_sliding_ask_t *ask,
    uint64_t hash);

/* due */
void ngx_http_limit_sliding_flush(ngx_event_t *ev);
void ngx_http_limit_sliding_make_due(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_node_t *to);
void ngx_http_limit_sliding_fail_due(ngx_http_limit_sliding_node_t *node);

/* wait */
void ngx_http_limit_sliding_join(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_waiter_t *waiter);
void ngx_http_limit_sliding_tell(ngx_http_limit_sliding_waiter_t *waiter,
    ngx_http_limit_sliding_told_e told);
void ngx_http_limit_sliding_fail_waiters(ngx_queue_t *waiters);
void ngx_http_limit_sliding_deadline(ngx_event_t *ev);

/* tell */
void ngx_http_limit_sliding_answered(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);
void ngx_http_limit_sliding_call_failed(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call);
void ngx_http_limit_sliding_add_refusal(
    ngx_http_limit_sliding_remote_zone_t *zone, limit_sliding_claim_t *claim,
    limit_sliding_verdict_t *verdict, ngx_msec_t asked);
void ngx_http_limit_sliding_ask_done(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_ask_t *ask);

/* script */
ngx_int_t ngx_http_limit_sliding_redis_script(ngx_conf_t *cf,
    ngx_http_limit_sliding_redis_t *redis);
ngx_uint_t ngx_http_limit_sliding_call_fits(
    ngx_http_limit_sliding_call_t *call, ngx_http_limit_sliding_ask_t *ask);
ngx_int_t ngx_http_limit_sliding_call_script(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call);

/* order */
ngx_int_t ngx_http_limit_sliding_call_order(
    ngx_http_limit_sliding_node_t *node, ngx_http_limit_sliding_call_t *call);

/* lease */
ngx_uint_t ngx_http_limit_sliding_lease_ask(
    ngx_http_limit_sliding_ask_t *ask);
void ngx_http_limit_sliding_lease_add(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_answer_t *answer, ngx_msec_t sent);
void ngx_http_limit_sliding_lease_waiters(ngx_http_limit_sliding_ask_t *ask);

/* answer */
ngx_uint_t ngx_http_limit_sliding_call_is_answered(
    ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_reply_t *reply);
int64_t *ngx_http_limit_sliding_read_answer(ngx_http_limit_sliding_ask_t *ask,
    uint64_t now_ms, int64_t *number,
    ngx_http_limit_sliding_answer_t *answer);
void ngx_http_limit_sliding_describe_part(ngx_http_limit_sliding_ask_t *ask,
    ngx_http_limit_sliding_answer_t *answer, ngx_uint_t i, uint32_t before,
    ngx_uint_t admitted, limit_sliding_verdict_t *verdict);

/* traffic */
uint64_t ngx_http_limit_sliding_redis_us(void);
void ngx_http_limit_sliding_redis_count(
    ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_call_t *call);

/* redis */
ngx_int_t ngx_http_limit_sliding_redis_start(
    ngx_http_limit_sliding_redis_t *redis);
void ngx_http_limit_sliding_redis_succeeded(
    ngx_http_limit_sliding_node_t *node);
void ngx_http_limit_sliding_redis_failed(ngx_http_limit_sliding_node_t *node);
void ngx_cdecl ngx_http_limit_sliding_redis_log(
    ngx_http_limit_sliding_redis_t *redis, ngx_err_t err, const char *fmt,
    ...);


#endif /* _NGX_HTTP_LIMIT_SLIDING_REDIS_NODE_H_INCLUDED_ */
