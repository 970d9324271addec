/* Copyright (C) the limit_sliding authors */

#include "redis/decisions/split_ask.hpp"

#include <algorithm>

#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/decisions/decision.hpp"
#include "redis/settlement/settlement.hpp"

namespace limit_sliding {

namespace {

/* The claims of a request that one call decides: waiter.claims. */
struct Piece {
    Waiter waiter;
    Ask *ask; /* ask that the waiter will join; nullptr: Waiter::result is set already */
};

/* The pieces of one request.  A split may outlive the request, and so owns copies of the claims,
 * in the order of the pieces. */
struct Split {
    Waiter *whole;        /* waiter of the request; nullptr: nobody waits */
    Span<Claim> claims;   /* copies of the claims */
    RemoteClaim *remotes; /* remote part of each copy */
    Policy *asked;        /* policy of the requested window of each copy */
    size_t *places;       /* index of each copy among the claims of the request */
    u_char *text;         /* memory for the text of the next key */
    Span<Piece> pieces;
    size_t nended; /* pieces whose wait has ended */
};

/* Copies the answer to a piece into the claims of the request. */
void copy_answer(const Split &split, const Piece &piece) {
    for (Claim &copy : piece.waiter.claims) {
        Claim &claim = split.whole->claims[split.places[&copy - split.claims.begin()]];
        RemoteClaim &remote = remote_of(claim);
        const RemoteClaim &from = remote_of(copy);

        remote.verdict = copy.given_verdict();
        remote.own = from.own;
        remote.source = from.source;
        remote.asked_limit = from.asked_limit;
        remote.taken = from.taken;
        set_policy(claim, *copy.policy);

        claim.limit = copy.limit;
        claim.decide(copy.standing == Standing::kGivenLate ? Standing::kGiven : copy.standing,
                     copy.outcome, remote.verdict);
        claim.state = copy.state;
    }
}

/* Handles the end of a piece.  The last piece tells the waiter of the request; claims of a failed
 * piece stay undecided. */
void piece_told(Split &split) {
    if (++split.nended < split.pieces.size()) { return; }

    WaitResult least = WaitResult::kAdmitted;
    for (const Piece &piece : split.pieces) {
        least = std::min(least, piece.waiter.result);
    }

    for (const Piece &piece : split.pieces) {
        const WaitResult result = piece.waiter.result;
        if (result == WaitResult::kAdmitted && least == WaitResult::kRejected) {
            give_back_granted(piece.waiter.claims);
        }

        if (result != WaitResult::kFailed && split.whole != nullptr) { copy_answer(split, piece); }
    }

    if (split.whole != nullptr) {
        split.whole->part = nullptr;
        split.whole->result = least;
        post_event(split.whole->event);
    }

    ngx_free(&split);
}

/* Returns a split without pieces, with room for the claims; nullptr: there is no memory. */
Split *create_split(Span<Claim> claims) {
    constexpr size_t kBytesPerClaim
        = sizeof(Piece) + sizeof(Claim) + sizeof(RemoteClaim) + sizeof(Policy) + sizeof(size_t);
    size_t n = claims.size();
    size_t bytes = sizeof(Split) + n * kBytesPerClaim;
    for (const Claim &claim : claims) {
        bytes += remote_of(claim).key.len;
    }

    auto *split = static_cast<Split *>(ngx_calloc(bytes, ngx_cycle->log));
    if (split == nullptr) { return nullptr; }

    auto *pieces = reinterpret_cast<Piece *>(split + 1);
    split->pieces = {pieces, 0};
    split->claims = {reinterpret_cast<Claim *>(pieces + n), 0};
    split->remotes = reinterpret_cast<RemoteClaim *>(split->claims.begin() + n);
    split->asked = reinterpret_cast<Policy *>(split->remotes + n);
    split->places = reinterpret_cast<size_t *>(split->asked + n);
    split->text = reinterpret_cast<u_char *>(split->places + n);
    return split;
}

/* Adds a copy of a claim of the request to the last piece. */
void add_claim(Split &split, const Claim &claim, size_t place) {
    Span<Claim> &in_piece = split.pieces.end()[-1].waiter.claims;
    size_t i = split.claims.size();
    split.claims = {split.claims.begin(), i + 1};
    in_piece = {split.claims.end() - in_piece.size() - 1, in_piece.size() + 1};

    RemoteClaim &remote = split.remotes[i];
    remote = remote_of(claim);
    split.asked[i] = remote.asked ? *remote.asked : *claim.policy;
    remote.asked = &split.asked[i];
    remote.key.data = split.text;
    split.text = append(split.text, view(remote_of(claim).key));

    Claim &copy = split.claims[i];
    copy = claim;
    copy.remote = &remote;
    set_policy(copy, *claim.policy);
    split.places[i] = place;
}

/* Adds a piece without claims, as a failed one until it gets an ask. */
Piece &add_piece(Split &split) {
    split.pieces = {split.pieces.begin(), split.pieces.size() + 1};
    Piece &piece = split.pieces.end()[-1];
    piece.waiter.result = WaitResult::kFailed;
    init_event<piece_told>(piece.waiter.event, split);
    return piece;
}

/* Makes a piece of the claims in each slot of a cluster, and frees their ask `mixed`.  `before` is
 * the number of claims of the request before them. */
void divide(Split &split, Ask &mixed, Span<Claim> claims, size_t before) {
    Span<AskPart> parts = mixed.parts;
    std::sort(parts.begin(), parts.end(), [](const AskPart &a, const AskPart &b) {
        return a.slot != b.slot ? a.slot < b.slot : a.index < b.index;
    });

    for (size_t i = 0; i < parts.size();) {
        size_t first = i;
        Piece &piece = add_piece(split);
        for (; i < parts.size() && parts[i].slot == parts[first].slot; i++) {
            add_claim(split, claims[parts[i].index], before + parts[i].index);
        }

        piece.ask = get_ask(piece.waiter.claims, kDecision);
    }

    ngx_free(&mixed);
}

/* Makes a piece, or one for each slot of a cluster, of claims of one Redis.  `before` is the number
 * of claims of the request before them.  If leases have units for all of the claims, the piece is
 * admitted without an ask. */
void add_claims(Split &split, Span<Claim> claims, size_t before) {
    bool is_leased = spend_leases(claims);
    Ask *ask = is_leased ? nullptr : get_ask(claims, kDecision);
    if (ask && ask->slot == kMixedSlots) {
        divide(split, *ask, claims, before);
        return;
    }

    Piece &piece = add_piece(split);
    for (size_t i = 0; i < claims.size(); i++) {
        add_claim(split, claims[i], before + i);
    }

    piece.ask = ask;
    if (is_leased) {
        describe_leases(piece.waiter.claims);
        piece.waiter.result = WaitResult::kAdmitted;
    }
}

} // namespace

bool ask_in_pieces(Span<Claim> claims, Ask *mixed, Waiter *waiter) {
    Split *split = create_split(claims);
    if (split == nullptr) {
        ngx_free(mixed);
        return false;
    }

    size_t begin = 0;
    if (mixed != nullptr) {
        divide(*split, *mixed, claims, 0);
        begin = claims.size();
    }

    while (begin < claims.size()) {
        const Redis *redis = remote_of(claims[begin]).zone->redis;
        size_t end = begin + 1;
        while (end < claims.size() && remote_of(claims[end]).zone->redis == redis) {
            end++;
        }

        add_claims(*split, {&claims[begin], end - begin}, begin);
        begin = end;
    }

    if (std::all_of(split->pieces.begin(), split->pieces.end(), [](const Piece &piece) {
            return piece.ask == nullptr && piece.waiter.result == WaitResult::kFailed;
        })) {
        ngx_free(split);
        return false;
    }

    split->whole = waiter;
    if (waiter != nullptr) { waiter->part = &split->whole; }

    for (Piece &piece : split->pieces) {
        if (piece.ask != nullptr) {
            join_ask(*piece.ask, &piece.waiter);
        } else {
            post_event(piece.waiter.event);
        }
    }
    return true;
}

void give_back_granted(Span<Claim> claims) {
    for (Claim &claim : claims) {
        RemoteClaim &remote = remote_of(claim);
        const bool is_granted = remote.source == Source::kRedis || remote.source == Source::kLease;
        if (claim.outcome != Outcome::kAdmitted || !is_granted) { continue; }

        Verdict &verdict = remote.verdict;
        (void)claim.given_verdict();
        if (claim.purpose == Purpose::kConsume) {
            const uint64_t most = claim.policy->capacity(verdict.limit);
            verdict.remaining = std::min(verdict.remaining + claim.cost, most);
            if (verdict.remaining >= most) { verdict.reset_ms = 0; }

            settle_redis(claim, -static_cast<int64_t>(claim.cost));
        }

        /* the next requests of the key meet the same verdict */
        Claim asked = claim;
        asked.limit = remote.asked_limit;
        add_refusal(*remote.zone, asked, verdict, ngx_current_msec);
    }
}

} // namespace limit_sliding
