/* Copyright (C) the limit_sliding authors */

/* Asks of requests to Redis, how they wait for them, and the calls that carry
 * asks. */

#pragma once

#include "ngx/array.hpp"
#include "ngx/strings.hpp"
#include "redis/calls/redis_state.hpp"

namespace limit_sliding {

/* Stands for the slot of keys that have several. */
constexpr auto kMixedSlots = -1;

/* Nodes that an ask is sent to before it fails. */
constexpr auto kHopsMax = 5;

struct Ask;
struct Answer;
struct Notice;

/* Asks call these functions of their notices, once: when the answer has come, of a call
 * that was sent at that time; when there will be none, of one that may have run; or when
 * the ask cannot be sent. */
struct NoticeEvents {
    void (*answered)(Notice &notice, const Ask &ask, const Answer &answer, ngx_msec_t sent);
    void (*failed)(Notice &notice);
    void (*unsent)(Notice &notice);
};

/* The report of an ask without waiters. */
struct Notice {
    const NoticeEvents *events;
    bool refused; /* Redis is known not to have run the call */
};

/* The orders of an administrator for one key. */
enum class KeyCommand { kNone = 0, kForget, kSetLimit, kUnsetLimit, kAskTtl };

/* Such a command, and the value that it sets: a limit, or the name of the mark of a key
 * that is forgotten. */
struct KeyWrite {
    KeyCommand command;
    ngx_str_t text;
    ngx_msec_t ttl_ms; /* how long it holds; 0: until it is unset */
};

/* One key of an ask.  The policy of its claim is the zone's, as an ask may outlive
 * the request. */
struct AskPart {
    Claim claim;
    RemoteZone *zone;
    Window window;         /* that is asked for; none: the zone's */
    ngx_str_t key;         /* in Redis */
    ngx_int_t slot;        /* in a cluster */
    size_t index;          /* among the request's claims */
    ngx_uint_t leased = 0; /* units of a bucket, beyond the waiters' */
    bool held = false;     /* when the call left, units of it were left here */
    Taken taken = {};      /* of refunded units, see scripts.hpp */
    uint64_t pace = 0;     /* at which debts are paid, unless Redis has a limit of the key */
};

/* The suffixes of the name of a key's state for the names of its limit, its debt, and the mark
 * that tells when the state was deleted. */
constexpr std::string_view kLimitSuffix = ":limit";
constexpr std::string_view kDebtSuffix = ":debt";
constexpr std::string_view kMarkSuffix = ":forgotten";

/* Claims that are decided together, and their waiters.  An ask is due at
 * a node, or in a call under way; one that is in a call and has units anew
 * becomes due with its reply. */
struct Ask {
    ngx_rbtree_node_t node; /* its key is the hash of the claims */
    ngx_queue_t link;       /* of the asks due at a node, or of a call */
    Redis *redis;
    Node *to;                /* where it is due, or was asked */
    WaiterList waiters;      /* for the next call */
    WaiterList asked;        /* for the one under way */
    ngx_uint_t units;        /* for the next call; nobody may wait for some */
    ngx_uint_t asked_units;  /* of the call under way, with the next ones */
    ngx_uint_t leased_units; /* beyond the waiters' */
    ngx_msec_t since;        /* when it was asked first, */
    ngx_uint_t hops;         /* and how often since then */
    bool in_call;
    bool asking;        /* to be sent after ASKING */
    bool shared;        /* is among the client's asks */
    bool settles;       /* is a settlement: of one part; the call settles its cost, */
    uint64_t unsettled; /* and the next one so many units */
    KeyWrite order;     /* if it is one, it has a part and a call for itself */
    Notice *notice;     /* if it is of a zone with "sync=": of one part, and nobody waits */
    ngx_int_t slot;     /* of all parts, or kMixedSlots */
    Span<AskPart> parts;
};

using AskList = List<Ask, &Ask::link>;

/* Returns the asks that are due at the node. */
inline AskList &due_at(Node &node) { return reinterpret_cast<AskList &>(node.due); }

/* Returns the settlements that are not due yet. */
inline AskList &waiting_of(Settling &settling) {
    return reinterpret_cast<AskList &>(settling.waiting);
}

/* Returns the units of a settlement: of the call under way, and of the next one. */
inline uint64_t units_of(const Ask &ask) { return ask.parts[0].claim.cost + ask.unsettled; }

/* Counts units of settlements that Redis has not taken. */
void count_unsettled(const Client &client, uint64_t units);

/* Notes for the breaker that the node has answered a call. */
void node_answered(Node &node);

/* Notes that it has not, or with an error that is no verdict. */
void node_failed(Node &node);

/* Returns how many bytes the name of the claim's state has. */
size_t key_bytes(const RemoteClaim &remote);

/* The part of it that stands for the key: the text, or its SHA-1 in hex. */
size_t name_bytes(const RemoteClaim &remote);
u_char *write_name(const RemoteClaim &remote, u_char *p);

/* Returns how much memory an ask of one part takes, but for a few bytes. */
size_t waiting_bytes(const Ask &ask);

/* Returns the ask for the same claims that is not over yet, or nullptr. */
Ask *find_ask(Redis &redis, uint64_t hash);

/* Returns the ask if its node is worth waiting for; else nullptr, and frees an ask
 * that nobody else waits for. */
Ask *if_worth(Ask &ask);

/* Returns the ask for claims of one Redis, for the windows that are asked for,
 * which others share; or one of kMixedSlots, which is the caller's.  nullptr: Redis is
 * away, the node is not worth waiting for, or there is no memory. */
Ask *get_ask(Redis &redis, Span<Claim> claims);

/* Makes an ask for the claims, with so many bytes more after the last key.
 * Returns nullptr if there is no memory. */
Ask *create_ask(Redis &redis, Span<Claim> claims, size_t bytes = 0);

/* The same with copies of some parts of another ask, which are of one slot. */
Ask *copy_ask(const Ask &ask, size_t first, size_t nparts);

/* Lets all requests that claim the same find it. */
void share_ask(Ask &ask, uint64_t hash);

/* Has the ask sent to the node, or to that of its slot, in this turn of the
 * event loop. */
void make_due(Ask &ask, Node &to);
void make_due(Ask &ask);

/* Takes the ask from where it is due. */
void remove_due(Ask &ask);

/* The ask is in no list any more: makes it due again if it has units, else
 * frees it. */
void ask_done(Ask &ask);

/* Adds a unit to the ask, which becomes due; the waiter, if there is one, will
 * be told. */
void join_ask(Ask &ask, Waiter *waiter);

/* The ask was due, and cannot be sent. */
void fail_ask(Ask &ask);

/* Ends a wait: the request goes on in this turn of the event loop, but after
 * the caller is done. */
void tell_waiter(Waiter &waiter, Told told);

void fail_waiters(WaiterList &waiters);

/* Begins the waits of this turn of the event loop, which is about to end: however long
 * that takes, a wait has its time from then on. */
void begin_waits(Client &client, ngx_msec_t timeout);

/* Ends the waits that have taken too long.  The client's timer calls it. */
void end_waits(Client &client);

/* The request is gone; its charge stays.  Safe to call at any time. */
void leave_ask(Waiter *waiter);

/* Asks a call: more of them gain little, and make others wait for Redis. */
constexpr auto kAsksPerCall = 16;

/* A call of the script, or a command for one key. */
struct AskCall : Call {
    AskList asks;
    size_t nasks;
    size_t nclaims;
    size_t numbers; /* of the reply at most, but for the time */
    bool whole;     /* was sent as EVAL */
    bool asking;    /* is sent after ASKING */
    bool command;   /* is one for a key */
};

/* Puts ASKING into the node's buffer, which lets the node run the next command
 * though it may not have got the slot yet.  Returns false if there is no memory. */
bool put_asking(Node &node);

/* Puts a command into the node's buffer, after ASKING if that is to come first.
 * Returns false if there is no memory; the call is still the caller's then. */
bool put_call(Node &node, AskCall &call, Span<const Arg> args);

/* Fails the call's asks, and frees it. */
void fail_call(Node &node, AskCall &call);

/* Frees a call after its asks are done, and sends the asks that waited for its end. */
void end_call(Node &node, AskCall &call);

/* In a cluster an ask that did not run where it was sent to becomes due
 * elsewhere, so often and so long that whoever waits for it still does.
 * Returns true if the error is such a redirection; the call is gone then. */
bool resend_call(Node &node, AskCall &call, Reply &reply);

/* The same for an ask that was due at a node that could not be connected to, before
 * the slot's node was known.  The ask is in no list. */
bool resend_due(Ask &ask, Node &node);

} // namespace limit_sliding
