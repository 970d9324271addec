/* Copyright (C) the limit_sliding authors */

/* Asks: errands about claims.  Requests wait for them, or listeners of their kind. */

#pragma once

#include "ngx/containers.hpp"
#include "redis/errands/sender.hpp"

namespace limit_sliding {

/* The most claims of a call. */
constexpr auto kClaimsPerCall = 2 * kClaimsMax;

/* Stands for the slot of keys that have several. */
constexpr auto kMixedSlots = -1;

struct Ask;
struct Answer;

/* A kind of asks.  Asks that the script answers share calls. */
struct AskKind : ErrandKind {
    /* Handles the answer of the script, in a call that was sent at `sent` ms, and ends the ask by
     * ask_done().  nullptr: another command answers the asks. */
    void (*take_answer)(Ask &ask, const Answer &answer, ngx_msec_t sent);

    /* Decides instead of ask_done() whether the ask is sent again.  Returns false if the ask is
     * over.  nullptr: an ask without units is over. */
    bool (*rest)(Ask &ask) = nullptr;
};

/* What a node with "sync=" tells Redis of a key: the units that it has admitted, less those that it
 * has given back, since it knows the key. */
struct Totals {
    uint64_t life; /* random number of 48 bits of the node and the key; 0: this is no report */
    int64_t acked; /* total that Redis has acknowledged */
    int64_t total; /* present total */
};

/* The name of a key that the script touches beside its state, limit and debt, as in the head. */
enum class Beside : uint8_t {
    kNothing = 0,
    kMark,  /* the node had leased units of the key when the call was sent */
    kTotals /* the zone has "sync=" */
};

/* One key of an ask.  The policy of its claim is the zone's, because an ask may outlive the
 * request. */
struct AskPart {
    Claim claim;
    RemoteZone *zone;
    Window window;         /* requested window; none: the window of the zone */
    ngx_str_t key;         /* name of the key's state in Redis; before name_keys() its text */
    ngx_int_t slot;        /* slot of the key in a cluster */
    size_t index;          /* index among the request's claims */
    ngx_uint_t leased = 0; /* units of a bucket that the call leases */
    Beside beside = {};    /* further name of the key */
    Taken taken = {};      /* time and state of the grant, for a refund */
    Totals totals = {};    /* of a report, in a zone with "sync=" */
    uint64_t pace = 0;     /* rate at which debts are paid, unless Redis has a limit of the key */
};

/* Returns the part of a state's name that all names of the key share: "PREFIXZONE:{KEY}". */
inline std::string_view base_of(const AskPart &part) {
    return {reinterpret_cast<const char *>(part.key.data), part.key.len - part.zone->shape.len + 1};
}

/* The limit of a key is at its base and this suffix.  Its debt, the mark that tells when its state
 * was deleted, and the totals of nodes are at the state's name and a suffix. */
constexpr std::string_view kLimitSuffix = ":limit";
constexpr std::string_view kDebtSuffix = ":debt";
constexpr std::string_view kMarkSuffix = ":forgotten";
constexpr std::string_view kTotalsSuffix = ":totals";

/* Claims that are decided together, and their waiters.  An ask in a call that gets more units is
 * sent again after the reply.  The key of the tree's node is the hash of the claims.  Types with
 * more state derive from it. */
struct Ask : Errand, ngx_rbtree_node_t {
    WaiterList waiters;      /* waiters for the next call */
    WaiterList asked;        /* waiters for the call under way */
    ngx_uint_t units;        /* units of the next call; some may have no waiter */
    ngx_uint_t asked_units;  /* units of the call under way, including leased_units */
    ngx_uint_t leased_units; /* units that the call leases */
    bool shared;             /* the ask is in Client::asks */
    bool kept;               /* an exiting worker waits for the ask */
    Span<AskPart> parts;
};

using AskList = List<Ask, &Ask::link>;

/* Returns the errands of a call that are known to be asks. */
inline AskList &asks_of(ErrandCall &call) { return reinterpret_cast<AskList &>(call.errands); }

inline const AskKind &kind_of(const Ask &ask) { return static_cast<const AskKind &>(*ask.kind); }

/* Makes the claim one of the window that its key had in the last reply, because leases, refusals
 * and the counts of this node belong to a window. */
inline void know_window(Claim &claim) {
    const OverrideCache *last = remote_of(claim).zone->last_overrides;
    if (last->has_windows() || claim.policy->salt != 0) {
        set_window(claim, last->find(claim.key_hash()));
    }
}

/* Returns the policy of this window. */
Policy known_policy(const AskPart &part);

/* Returns the ask for the same claims that has not ended yet, or nullptr. */
Ask *find_ask(Redis &redis, uint64_t hash);

/* Returns the ask if its node is worth waiting for; else nullptr, and frees an idle ask. */
Ask *if_worth(Ask &ask);

/* Returns the ask of this kind for claims of one Redis and their requested windows, shared with
 * other requests; or an ask of kMixedSlots, which the caller owns.  nullptr: Redis is away, the
 * node is not worth waiting for, or there is no memory. */
Ask *get_ask(Span<Claim> claims, const AskKind &kind);

/* Returns the length in bytes of the name of a key's state. */
size_t name_bytes(const RemoteZone &zone, const ngx_str_t &text);

/* Makes an ask for claims of one Redis: a zeroed object of ask_bytes, an Ask with more state, room
 * for the names of its keys after its parts, and `bytes` after the names.  Returns nullptr if there
 * is no memory. */
Ask *create_unnamed_ask(Span<Claim> claims, const AskKind &kind, size_t ask_bytes, size_t bytes);

/* Writes the names of the keys, and finds their slots. */
void name_keys(Ask &ask);

/* Makes an ask of type T with names. */
template <class T = Ask>
T *create_ask(Span<Claim> claims, const AskKind &kind, size_t bytes = 0) {
    Ask *ask = create_unnamed_ask(claims, kind, sizeof(T), bytes);
    if (ask != nullptr) { name_keys(*ask); }

    return static_cast<T *>(ask);
}

/* Lets all requests with the same claims find the ask. */
void share_ask(Ask &ask, uint64_t hash);

/* Sends an ask again that is in no list, if it has units; else frees it. */
void ask_done(Ask &ask);

/* Adds a unit to the ask.  The waiter, if not nullptr, will be woken. */
void add_unit(Ask &ask, Waiter *waiter);

/* Adds a unit to the ask, and sends it unless it waits for a reply. */
void join_ask(Ask &ask, Waiter *waiter);

/* Makes an exiting worker wait for the end of the ask, for connect_timeout + timeout from now. */
void keep_worker(Ask &ask);

/* ErrandKind::join: adds an ask with its waiters and units to a call: of the script, or of its own
 * if its kind has no take_answer().  Units without a waiter come last. */
bool join_call(ErrandCall &call, Errand &errand);

/* ErrandKind::returned: reverts join_call().  Later waiters stay behind the others. */
void return_waiters(Errand &errand);

/* ErrandKind::failed: fails the waiters, and ends the ask. */
void fail_waiters(Errand &errand, Failure failure);

/* Ends a wait.  The request continues in this turn of the event loop, after the caller. */
void wake_waiter(Waiter &waiter, WaitResult result);

/* Ends the waits that have taken too long.  The client's timer calls it. */
void end_waits(Client &client);

/* Ends the wait of a request that is gone; its charge stays.  May be called at any time. */
void leave_ask(Waiter *waiter);

} // namespace limit_sliding
