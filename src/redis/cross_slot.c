
/*
 * Copyright (C) the limit_sliding authors
 */


/*
 * A request whose keys lie in several slots of a cluster: no script can decide
 * them all, so they are asked at once, each slot by an ask of its own.  What
 * was granted is given back if another one rejected.  That holds for a request
 * that is gone by then, too: hence everything is ours but the one who waits.
 */


#include "redis/cluster.h"


/* The parts of one slot. */

typedef struct {
    ngx_http_limit_sliding_waiter_t   waiter;
    ngx_uint_t                        first;
    ngx_uint_t                        n;
} ngx_http_limit_sliding_piece_t;


struct ngx_http_limit_sliding_split_s {
    ngx_http_limit_sliding_waiter_t  *whole;       /* NULL: nobody waits */
    ngx_http_limit_sliding_ask_t     *ask;         /* is never due itself */
    limit_sliding_claim_t            *claims;      /* as its parts are */
    ngx_http_limit_sliding_remote_t  *remotes;
    ngx_uint_t                        npieces;
    ngx_uint_t                        ntold;
    ngx_http_limit_sliding_piece_t    pieces[1];
};


static void ngx_http_limit_sliding_sort_parts(
    ngx_http_limit_sliding_ask_t *ask);
static ngx_http_limit_sliding_split_t *ngx_http_limit_sliding_create_split(
    ngx_http_limit_sliding_ask_t *ask, limit_sliding_claim_t *claims);
static void ngx_http_limit_sliding_ask_piece(
    ngx_http_limit_sliding_split_t *split,
    ngx_http_limit_sliding_piece_t *piece);
static ngx_http_limit_sliding_ask_t *ngx_http_limit_sliding_copy_ask(
    ngx_http_limit_sliding_ask_t *ask, ngx_uint_t first, ngx_uint_t n);
static void ngx_http_limit_sliding_piece_told(ngx_event_t *ev);
static void ngx_http_limit_sliding_tell_whole(
    ngx_http_limit_sliding_split_t *split, ngx_uint_t failed,
    ngx_uint_t rejected);
static void ngx_http_limit_sliding_given_back(
    ngx_http_limit_sliding_part_t *part, limit_sliding_verdict_t *verdict);
static void ngx_http_limit_sliding_give_back(
    ngx_http_limit_sliding_split_t *split,
    ngx_http_limit_sliding_piece_t *piece);


/* As ngx_http_limit_sliding_ask(); the ask is ours from now on. */

ngx_int_t
ngx_http_limit_sliding_split(ngx_http_limit_sliding_redis_t *redis,
    ngx_http_limit_sliding_ask_t *ask, limit_sliding_claim_t *claims,
    ngx_http_limit_sliding_waiter_t *waiter)
{
    ngx_uint_t                       i;
    ngx_http_limit_sliding_split_t  *split;

    for (i = 0; i < ask->nparts; i++) {
        if (!ngx_http_limit_sliding_is_worth(redis, ask->parts[i].slot)) {
            ngx_free(ask);
            return NGX_DECLINED;
        }
    }

    ngx_http_limit_sliding_sort_parts(ask);

    split = ngx_http_limit_sliding_create_split(ask, claims);
    if (split == NULL) {
        ngx_free(ask);
        return NGX_DECLINED;
    }

    split->whole = waiter;

    if (waiter) {
        waiter->split = split;
    }

    for (i = 0; i < split->npieces; i++) {
        ngx_http_limit_sliding_ask_piece(split, &split->pieces[i]);
    }

    return NGX_OK;
}


/* By slot, and else in their order. */

static void
ngx_http_limit_sliding_sort_parts(ngx_http_limit_sliding_ask_t *ask)
{
    ngx_uint_t                     i, j;
    ngx_http_limit_sliding_part_t  part;

    for (i = 1; i < ask->nparts; i++) {
        part = ask->parts[i];

        for (j = i; j > 0 && ask->parts[j - 1].slot > part.slot; j--) {
            ask->parts[j] = ask->parts[j - 1];
        }

        ask->parts[j] = part;
    }
}


static ngx_http_limit_sliding_split_t *
ngx_http_limit_sliding_create_split(ngx_http_limit_sliding_ask_t *ask,
    limit_sliding_claim_t *claims)
{
    ngx_uint_t                        i, n;
    ngx_http_limit_sliding_piece_t   *piece;
    ngx_http_limit_sliding_split_t   *split;
    ngx_http_limit_sliding_remote_t  *remote;

    n = ask->nparts;

    split = ngx_calloc(sizeof(ngx_http_limit_sliding_split_t)
                       + n * (sizeof(ngx_http_limit_sliding_piece_t)
                              + sizeof(limit_sliding_claim_t)
                              + sizeof(ngx_http_limit_sliding_remote_t)),
                       ngx_cycle->log);
    if (split == NULL) {
        return NULL;
    }

    split->ask = ask;
    split->claims = (limit_sliding_claim_t *) &split->pieces[n];
    split->remotes = (ngx_http_limit_sliding_remote_t *) &split->claims[n];

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
            piece->waiter.event.handler = ngx_http_limit_sliding_piece_told;
            piece->waiter.event.data = split;
            piece->waiter.event.log = ngx_cycle->log;
        }

        piece->n++;
    }

    return split;
}


static void
ngx_http_limit_sliding_ask_piece(ngx_http_limit_sliding_split_t *split,
    ngx_http_limit_sliding_piece_t *piece)
{
    uint64_t                         hash;
    ngx_http_limit_sliding_ask_t    *ask;
    ngx_http_limit_sliding_redis_t  *redis;

    redis = split->ask->redis;

    hash = limit_sliding_claim_hash(piece->waiter.claims, piece->n);

    ask = ngx_http_limit_sliding_find_ask(redis, hash);

    if (ask == NULL) {
        ask = ngx_http_limit_sliding_copy_ask(split->ask, piece->first,
                                              piece->n);
        if (ask == NULL) {
            piece->waiter.told = NGX_HTTP_LIMIT_SLIDING_FAILED;
            ngx_post_event(&piece->waiter.event, &ngx_posted_events);
            return;
        }

        ngx_http_limit_sliding_share_ask(ask, hash);
    }

    ngx_http_limit_sliding_join(redis, ask, &piece->waiter);
}


/* Of n parts of one slot. */

static ngx_http_limit_sliding_ask_t *
ngx_http_limit_sliding_copy_ask(ngx_http_limit_sliding_ask_t *ask,
    ngx_uint_t first, ngx_uint_t n)
{
    size_t                          len;
    u_char                         *p;
    ngx_uint_t                      i;
    ngx_http_limit_sliding_ask_t   *copy;
    ngx_http_limit_sliding_part_t  *part;

    len = 0;

    for (i = first; i < first + n; i++) {
        len += ask->parts[i].key.len;
    }

    copy = ngx_http_limit_sliding_alloc_ask(ask->redis, n, len);
    if (copy == NULL) {
        return NULL;
    }

    copy->slot = ask->parts[first].slot;

    p = (u_char *) &copy->parts[n];

    for (i = 0; i < n; i++) {
        part = &copy->parts[i];

        *part = ask->parts[first + i];
        part->key.data = p;
        p = ngx_cpymem(p, ask->parts[first + i].key.data, part->key.len);
    }

    return copy;
}


/* Posted.  The last one tells the request. */

static void
ngx_http_limit_sliding_piece_told(ngx_event_t *ev)
{
    ngx_http_limit_sliding_split_t  *split = ev->data;

    ngx_uint_t                       i, failed, rejected;
    ngx_http_limit_sliding_piece_t  *piece;
    ngx_http_limit_sliding_redis_t  *redis;

    if (++split->ntold < split->npieces) {
        return;
    }

    redis = split->ask->redis;
    failed = 0;
    rejected = 0;

    for (i = 0; i < split->npieces; i++) {
        piece = &split->pieces[i];

        if (piece->waiter.told == NGX_HTTP_LIMIT_SLIDING_FAILED) {
            failed = 1;

        } else if (!piece->waiter.admitted) {
            rejected = 1;
        }
    }

    if (split->whole) {
        ngx_http_limit_sliding_tell_whole(split, failed, rejected);
    }

    /* a request that passes without some of them has consumed the others */

    if (failed ? redis->on_error == NGX_HTTP_LIMIT_SLIDING_ON_ERROR_DENY
               : rejected)
    {
        for (i = 0; i < split->npieces; i++) {
            piece = &split->pieces[i];

            if (piece->waiter.told != NGX_HTTP_LIMIT_SLIDING_FAILED
                && piece->waiter.admitted)
            {
                ngx_http_limit_sliding_give_back(split, piece);
            }
        }
    }

    ngx_free(split->ask);
    ngx_free(split);
}


static void
ngx_http_limit_sliding_tell_whole(ngx_http_limit_sliding_split_t *split,
    ngx_uint_t failed, ngx_uint_t rejected)
{
    ngx_uint_t                        i, j;
    limit_sliding_claim_t            *claim, *told;
    limit_sliding_verdict_t          *verdict;
    ngx_http_limit_sliding_piece_t   *piece;
    ngx_http_limit_sliding_waiter_t  *whole;
    ngx_http_limit_sliding_remote_t  *remote;

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
                ngx_http_limit_sliding_given_back(&split->ask->parts[j],
                                                  verdict);
            }

            claim->limit = told->limit;
            claim->verdict = verdict;
            claim->outcome = told->outcome;
        }
    }

    whole->split = NULL;
    whole->admitted = !failed && !rejected;
    whole->told = failed ? NGX_HTTP_LIMIT_SLIDING_FAILED
                         : NGX_HTTP_LIMIT_SLIDING_TOLD;

    ngx_post_event(&whole->event, &ngx_posted_events);
}


/* What a key has once its units are given back, for who comes next, too. */

static void
ngx_http_limit_sliding_given_back(ngx_http_limit_sliding_part_t *part,
    limit_sliding_verdict_t *verdict)
{
    uint64_t                capacity, remaining;
    limit_sliding_claim_t  *claim;

    claim = &part->claim;

    if (!claim->look) {
        capacity = limit_sliding_capacity(claim->policy, verdict->limit);
        remaining = (uint64_t) verdict->remaining + claim->cost;

        verdict->remaining = (uint32_t) ngx_min(remaining, capacity);

        if (remaining >= capacity) {
            verdict->reset_ms = 0;
        }
    }

    ngx_http_limit_sliding_add_refusal(part->zone, claim, verdict,
                                       ngx_current_msec);
}


void
ngx_http_limit_sliding_split_leave(ngx_http_limit_sliding_waiter_t *waiter)
{
    waiter->split->whole = NULL;
    waiter->split = NULL;
}


/* If that fails the units are back with their window. */

static void
ngx_http_limit_sliding_give_back(ngx_http_limit_sliding_split_t *split,
    ngx_http_limit_sliding_piece_t *piece)
{
    ngx_uint_t                        i, n;
    ngx_http_limit_sliding_ask_t     *ask;
    ngx_http_limit_sliding_part_t    *part;
    ngx_http_limit_sliding_remote_t  *remote;

    ask = ngx_http_limit_sliding_copy_ask(split->ask, piece->first, piece->n);
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

        if (remote->source == NGX_HTTP_LIMIT_SLIDING_LEASE) {
            part->claim.state = split->claims[piece->first + i].state;
            limit_sliding_leases_return(part->zone->leases, &part->claim,
                                        ngx_current_msec);
            continue;
        }

        part->claim.look = NGX_HTTP_LIMIT_SLIDING_GIVE_BACK;
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

    ngx_http_limit_sliding_make_due(ask,
                       ngx_http_limit_sliding_route(ask->redis, ask->slot));
}
