/* Copyright (C) the limit_sliding authors */

#include "redis/cross_slot.hpp"

#include <algorithm>

#include "ngx/event.hpp"
#include "redis/deliver.hpp"
#include "redis/logic/claim_hash.hpp"

namespace limit_sliding {

namespace {

/* The parts of one slot, which lie beside each other: as many as the waiter's
 * claims. */
struct Piece {
    Waiter waiter;
    size_t first;
};

/* A request that was divided.  It outlives a request that is gone, and so owns
 * all of it but the waiter. */
struct CrossSlot {
    Waiter *whole;      /* nullptr: nobody waits */
    Ask *ask;           /* is never due itself; its parts are sorted by slot */
    Span<Claim> claims; /* as its parts are */
    Span<RemoteClaim> remotes;
    Span<Policy> asked; /* of the windows that are asked for */
    Span<Piece> pieces;
    size_t ntold;
};

/* Describes a key once its units are given back, also to requests that come
 * next. */
void describe_given_back(const AskPart &part, const Policy &policy, Verdict &verdict) {
    Claim claim = part.claim;
    claim.set_policy(policy);
    if (claim.purpose == Purpose::kConsume) {
        uint64_t most = claim.policy->capacity(verdict.limit);
        uint64_t remaining = verdict.remaining + claim.cost;
        verdict.remaining = std::min(remaining, most);
        if (remaining >= most) { verdict.reset_ms = 0; }
    }

    add_refusal(*part.zone, claim, verdict, ngx_current_msec);
}

/* Gives back the units of a piece.  If that fails they are back with their
 * window. */
void give_back(CrossSlot &split, const Piece &piece) {
    Ask *ask = copy_ask(*split.ask, piece.first, piece.waiter.claims.size());
    if (ask == nullptr) { return; }

    size_t n = 0;
    for (size_t i = 0; i < ask->parts.size(); i++) {
        AskPart &part = ask->parts[i];
        const RemoteClaim &remote = split.remotes[piece.first + i];
        if (part.claim.purpose != Purpose::kConsume || part.claim.cost == 0) { continue; }

        if (remote.source == Source::kLease) {
            Claim claim = part.claim;
            claim.set_policy(*split.claims[piece.first + i].policy);
            claim.state = split.claims[piece.first + i].state;
            part.zone->leases->give_back(claim, ngx_current_msec);
            continue;
        }

        part.claim.purpose = Purpose::kGiveBack;
        part.taken = remote.taken;

        ask->parts[n++] = part;
    }

    if (n == 0) {
        ngx_free(ask);
        return;
    }

    ask->parts = {ask->parts.begin(), n};
    ask->units = 1;
    make_due(*ask);
}

/* Copies the outcomes of a piece to the claims of the request. */
void tell_piece(const CrossSlot &split, const Piece &piece, Told told) {
    for (size_t i = piece.first; i < piece.first + piece.waiter.claims.size(); i++) {
        const AskPart &part = split.ask->parts[i];
        Claim &claim = split.whole->claims[part.index];
        RemoteClaim &remote = remote_of(claim);

        remote.verdict = split.remotes[i].verdict;
        remote.own = split.remotes[i].own;
        remote.source = split.remotes[i].source;
        remote.asked_limit = split.remotes[i].asked_limit;
        remote.taken = split.remotes[i].taken;
        set_policy(claim, *split.claims[i].policy);
        if (told == Told::kRejected && piece.waiter.told == Told::kAdmitted) {
            describe_given_back(part, *claim.policy, remote.verdict);
        }

        claim.limit = split.claims[i].limit;
        claim.verdict = &remote.verdict;
        claim.outcome = split.claims[i].outcome;
        claim.state = split.claims[i].state;
    }
}

void tell_whole(CrossSlot &split, Told told) {
    Waiter &whole = *split.whole;
    if (told != Told::kFailed) {
        for (const Piece &piece : split.pieces) {
            tell_piece(split, piece, told);
        }
    }

    whole.part = nullptr;
    whole.told = told;
    ngx_post_event(&whole.event, &ngx_posted_events);
}

/* A piece was told.  The last one tells the request. */
void piece_told(CrossSlot &split) {
    if (++split.ntold < split.pieces.size()) { return; }

    Told told = Told::kAdmitted;
    for (const Piece &piece : split.pieces) {
        told = std::min(told, piece.waiter.told);
    }

    if (split.whole) { tell_whole(split, told); }

    /* a request that passes without some of them has consumed the others */
    OnError on_error = split.ask->redis->settings.on_error;
    if (told == Told::kFailed ? on_error == OnError::kDeny : told == Told::kRejected) {
        for (const Piece &piece : split.pieces) {
            if (piece.waiter.told == Told::kAdmitted) { give_back(split, piece); }
        }
    }

    ngx_free(split.ask);
    ngx_free(&split);
}

/* Returns nullptr if there is no memory. */
CrossSlot *create_split(Ask &ask, Span<Claim> claims) {
    size_t n = ask.parts.size();
    auto *split = static_cast<CrossSlot *>(
        ngx_calloc(sizeof(CrossSlot)
                       + n * (sizeof(Piece) + sizeof(Claim) + sizeof(RemoteClaim) + sizeof(Policy)),
                   ngx_cycle->log));
    if (split == nullptr) { return nullptr; }

    auto *pieces = reinterpret_cast<Piece *>(split + 1);
    size_t npieces = 0;
    split->ask = &ask;
    split->claims = {reinterpret_cast<Claim *>(pieces + n), n};
    split->remotes = {reinterpret_cast<RemoteClaim *>(split->claims.end()), n};
    split->asked = {reinterpret_cast<Policy *>(split->remotes.end()), n};

    for (size_t i = 0; i < n; i++) {
        const AskPart &part = ask.parts[i];
        split->remotes[i].zone = remote_of(claims[part.index]).zone;
        split->remotes[i].source = Source::kRedis;
        split->claims[i] = part.claim;
        split->claims[i].remote = &split->remotes[i];
        split->asked[i] = with_window(*part.zone->policy, part.window);
        split->claims[i].set_policy(split->asked[i]);
        if (i == 0 || part.slot != ask.parts[i - 1].slot) {
            Piece &piece = pieces[npieces++];
            piece.first = i;
            init_event<piece_told>(piece.waiter.event, *split);
        }

        Piece &piece = pieces[npieces - 1];
        piece.waiter.claims = {&split->claims[piece.first], i + 1 - piece.first};
    }

    split->pieces = {pieces, npieces};
    return split;
}

void ask_piece(const CrossSlot &split, Piece &piece) {
    Redis &redis = *split.ask->redis;
    Span<Claim> claims = piece.waiter.claims;
    uint64_t hash = claim_hash(claims.begin(), claims.size());
    Ask *ask = find_ask(redis, hash);
    if (ask == nullptr) {
        ask = copy_ask(*split.ask, piece.first, claims.size());
        if (ask == nullptr) {
            piece.waiter.told = Told::kFailed;
            ngx_post_event(&piece.waiter.event, &ngx_posted_events);
            return;
        }

        share_ask(*ask, hash);
    }

    join_ask(*ask, &piece.waiter);
}

/* Sorts by slot; parts of the same slot keep their order. */
void sort_parts(Span<AskPart> parts) {
    std::sort(parts.begin(), parts.end(), [](const AskPart &a, const AskPart &b) {
        return a.slot != b.slot ? a.slot < b.slot : a.index < b.index;
    });
}

bool is_worth(const Ask &ask) {
    Nodes &nodes = ask.redis->client.nodes;

    return std::all_of(ask.parts.begin(), ask.parts.end(),
                       [&](const AskPart &part) { return nodes.is_worth(part.slot); });
}

} // namespace

bool ask_across_slots(Ask &ask, Span<Claim> claims, Waiter *waiter) {
    CrossSlot *split = nullptr;
    if (is_worth(ask)) {
        sort_parts(ask.parts);
        split = create_split(ask, claims);
    }

    if (split == nullptr) {
        ngx_free(&ask);
        return false;
    }

    split->whole = waiter;
    if (waiter) { waiter->part = &split->whole; }

    for (Piece &piece : split->pieces) {
        ask_piece(*split, piece);
    }
    return true;
}

} // namespace limit_sliding
