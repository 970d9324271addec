
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * A request whose keys lie in several slots of a cluster: no script can decide
 * them all, so they are asked at once, each slot by an ask of its own.  What
 * was granted is given back if another one rejected.  That holds for a request
 * that is gone by then, too: hence everything is ours but the one who waits.
 */

#include "redis/cross_slot.hpp"
#include "ngx/ngx.hpp"
#include "redis/batch.hpp"
#include "redis/deliver.hpp"

namespace limit_sliding {

/* The parts of one slot. */

struct Piece {
    Waiter waiter;
    ngx_uint_t first;
    ngx_uint_t n;
};

struct CrossSlot {
    Waiter *whole; /* NULL: nobody waits */
    Ask *ask;      /* is never due itself */
    Claim *claims; /* as its parts are */
    RemoteClaim *remotes;
    ngx_uint_t npieces;
    ngx_uint_t ntold;
    Piece pieces[1];
};

static void sort_parts(Ask *ask);
static CrossSlot *create_split(Ask *ask, Claim *claims);
static void ask_piece(CrossSlot *split, Piece *piece);
static Ask *copy_ask(Ask *ask, ngx_uint_t first, ngx_uint_t n);
static void piece_told(ngx_event_t *ev);
static void tell_whole(CrossSlot *split, ngx_uint_t failed,
                       ngx_uint_t rejected);
static void given_back(AskPart *part, Verdict *verdict);
static void give_back(CrossSlot *split, Piece *piece);

/* As ask_redis(); the ask is ours from now on. */

ngx_int_t ask_across_slots(Redis *redis, Ask *ask, Claim *claims,
                           Waiter *waiter)
{
    ngx_uint_t i;
    CrossSlot *split;

    for (i = 0; i < ask->nparts; i++) {
        if (!redis->client.nodes.is_worth(ask->parts[i].slot)) {
            ngx_free(ask);
            return NGX_DECLINED;
        }
    }

    sort_parts(ask);

    split = create_split(ask, claims);
    if (split == NULL) {
        ngx_free(ask);
        return NGX_DECLINED;
    }

    split->whole = waiter;

    if (waiter) {
        waiter->split = split;
    }

    for (i = 0; i < split->npieces; i++) {
        ask_piece(split, &split->pieces[i]);
    }

    return NGX_OK;
}

/* By slot, and else in their order. */

static void sort_parts(Ask *ask)
{
    ngx_uint_t i, j;
    AskPart part;

    for (i = 1; i < ask->nparts; i++) {
        part = ask->parts[i];

        for (j = i; j > 0 && ask->parts[j - 1].slot > part.slot; j--) {
            ask->parts[j] = ask->parts[j - 1];
        }

        ask->parts[j] = part;
    }
}

static CrossSlot *create_split(Ask *ask, Claim *claims)
{
    ngx_uint_t i, n;
    Piece *piece;
    CrossSlot *split;
    RemoteClaim *remote;

    n = ask->nparts;

    split = ngx_calloc(
        sizeof(CrossSlot)
            + n * (sizeof(Piece) + sizeof(Claim) + sizeof(RemoteClaim)),
        ngx_cycle->log);
    if (split == NULL) {
        return NULL;
    }

    split->ask = ask;
    split->claims = (Claim *)&split->pieces[n];
    split->remotes = (RemoteClaim *)&split->claims[n];

    piece = NULL;

    for (i = 0; i < n; i++) {
        remote = claims[ask->parts[i].index].remote;

        split->remotes[i].zone = remote->zone;
        split->claims[i] = ask->parts[i].claim;
        split->claims[i].remote = &split->remotes[i];

        if (piece == NULL || ask->parts[i].slot != ask->parts[i - 1].slot) {
            piece = &split->pieces[split->npieces++];
            piece->first = i;
            piece->waiter.claims = &split->claims[i];
            piece->waiter.event.handler = piece_told;
            piece->waiter.event.data = split;
            piece->waiter.event.log = ngx_cycle->log;
        }

        piece->n++;
    }

    return split;
}

static void ask_piece(CrossSlot *split, Piece *piece)
{
    uint64_t hash;
    Ask *ask;
    Redis *redis;

    redis = split->ask->redis;

    hash = limit_sliding::claim_hash(piece->waiter.claims, piece->n);

    ask = find_ask(redis, hash);

    if (ask == NULL) {
        ask = copy_ask(split->ask, piece->first, piece->n);
        if (ask == NULL) {
            piece->waiter.told = Told::kFailed;
            ngx_post_event(&piece->waiter.event, &ngx_posted_events);
            return;
        }

        share_ask(ask, hash);
    }

    join_ask(redis, ask, &piece->waiter);
}

/* Of n parts of one slot. */

static Ask *copy_ask(Ask *ask, ngx_uint_t first, ngx_uint_t n)
{
    size_t len;
    u_char *p;
    ngx_uint_t i;
    Ask *copy;
    AskPart *part;

    len = 0;

    for (i = first; i < first + n; i++) {
        len += ask->parts[i].key.len;
    }

    copy = alloc_ask(ask->redis, n, len);
    if (copy == NULL) {
        return NULL;
    }

    copy->slot = ask->parts[first].slot;

    p = (u_char *)&copy->parts[n];

    for (i = 0; i < n; i++) {
        part = &copy->parts[i];

        *part = ask->parts[first + i];
        part->key.data = p;
        p = ngx_cpymem(p, ask->parts[first + i].key.data, part->key.len);
    }

    return copy;
}

/* Posted.  The last one tells the request. */

static void piece_told(ngx_event_t *ev)
{
    CrossSlot *split = ev->data;

    ngx_uint_t i, failed, rejected;
    Piece *piece;
    Redis *redis;

    if (++split->ntold < split->npieces) {
        return;
    }

    redis = split->ask->redis;
    failed = 0;
    rejected = 0;

    for (i = 0; i < split->npieces; i++) {
        piece = &split->pieces[i];

        if (piece->waiter.told == Told::kFailed) {
            failed = 1;

        } else if (!piece->waiter.admitted) {
            rejected = 1;
        }
    }

    if (split->whole) {
        tell_whole(split, failed, rejected);
    }

    /* a request that passes without some of them has consumed the others */

    if (failed ? redis->settings.on_error == OnError::kDeny : rejected) {
        for (i = 0; i < split->npieces; i++) {
            piece = &split->pieces[i];

            if (piece->waiter.told != Told::kFailed && piece->waiter.admitted) {
                give_back(split, piece);
            }
        }
    }

    ngx_free(split->ask);
    ngx_free(split);
}

static void tell_whole(CrossSlot *split, ngx_uint_t failed, ngx_uint_t rejected)
{
    ngx_uint_t i, j;
    Claim *claim, *told;
    Verdict *verdict;
    Piece *piece;
    Waiter *whole;
    RemoteClaim *remote;

    whole = split->whole;

    for (i = 0; i < split->npieces && !failed; i++) {
        piece = &split->pieces[i];

        for (j = piece->first; j < piece->first + piece->n; j++) {
            told = &split->claims[j];
            claim = &whole->claims[split->ask->parts[j].index];

            remote = claim->remote;
            verdict = &remote->verdict;
            *verdict = split->remotes[j].verdict;
            remote->own = split->remotes[j].own;

            if (rejected && piece->waiter.admitted) {
                given_back(&split->ask->parts[j], verdict);
            }

            claim->limit = told->limit;
            claim->verdict = verdict;
            claim->outcome = told->outcome;
        }
    }

    whole->split = NULL;
    whole->admitted = !failed && !rejected;
    whole->told = failed ? Told::kFailed : Told::kTold;

    ngx_post_event(&whole->event, &ngx_posted_events);
}

/* What a key has once its units are given back, for who comes next, too. */

static void given_back(AskPart *part, Verdict *verdict)
{
    uint64_t capacity, remaining;
    Claim *claim;

    claim = &part->claim;

    if (!claim->look) {
        capacity = limit_sliding::capacity(claim->policy, verdict->limit);
        remaining = (uint64_t)verdict->remaining + claim->cost;

        verdict->remaining = (uint32_t)ngx_min(remaining, capacity);

        if (remaining >= capacity) {
            verdict->reset_ms = 0;
        }
    }

    add_refusal(part->zone, claim, verdict, ngx_current_msec);
}

void split_leave(Waiter *waiter)
{
    waiter->split->whole = NULL;
    waiter->split = NULL;
}

/* If that fails the units are back with their window. */

static void give_back(CrossSlot *split, Piece *piece)
{
    ngx_uint_t i, n;
    Ask *ask;
    AskPart *part;
    RemoteClaim *remote;

    ask = copy_ask(split->ask, piece->first, piece->n);
    if (ask == NULL) {
        return;
    }

    n = 0;

    for (i = 0; i < ask->nparts; i++) {
        part = &ask->parts[i];
        remote = &split->remotes[piece->first + i];

        if (part->claim.look || part->claim.cost == 0) {
            continue;
        }

        if (remote->source == Source::kLease) {
            part->claim.state = split->claims[piece->first + i].state;
            limit_sliding::leases_return(part->zone->leases, &part->claim,
                                         ngx_current_msec);
            continue;
        }

        part->claim.look = kLookGiveBack;
        part->taken_ms = remote->taken_ms;
        part->taken_of = remote->taken_of;

        ask->parts[n++] = *part;
    }

    ask->nparts = n;

    if (n == 0) {
        ngx_free(ask);
        return;
    }

    ask->units = 1;

    make_due(ask, ask->redis->client.nodes.route(ask->slot));
}

} // namespace limit_sliding
