/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/logic/lease.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/mix.hpp"
#include "redis/logic/lease_table.hpp"

namespace limit_sliding {

using namespace limit_sliding;

namespace {

constexpr size_t kLeases = 2; /* candidates of a key */
constexpr uint64_t kRetries = 512;

/* In one of so many a lease is taken over that is still being written. */
constexpr uint64_t kPatience = 64;

} // namespace

struct Leases {
    uint64_t groups;
    Lease lease[1][kLeases];
};

namespace {

struct Found {
    Lease *lease;
    uint64_t word;
    Terms terms;
};

Owner owner_of(const Claim &claim)
{
    return {mixed(claim.hash), claim.limit};
}

/* All leases of a key are in one. */
Lease *group_of(const Leases *leases, const Owner &owner)
{
    uint64_t number = (owner.hash >> 32) * leases->groups >> 32;

    return const_cast<Leases *>(leases)->lease[number];
}

/* The key's lease, if it has as many units. */
bool find(const Leases *leases, const Owner &owner, uint64_t units,
          Found *found)
{
    Lease *group = group_of(leases, owner);

    for (size_t i = 0; i < kLeases; i++) {
        found->lease = &group[i];
        found->word = group[i].word();

        if (Lease::units(found->word) >= units
            && group[i].read(owner, found->word, &found->terms)) {
            return true;
        }
    }

    return false;
}

/* Where a new key's lease goes; false if all candidates are others'. */
bool find_victim(const Leases *leases, const Owner &owner, uint64_t now_ms,
                 bool patient, Found *found)
{
    Lease *group = group_of(leases, owner);

    found->lease = nullptr;

    for (size_t i = 0; i < kLeases; i++) {
        uint64_t word = group[i].word();
        bool is_others
            = group[i].is_whole(word) ? group[i].is_in_use(now_ms) : patient;

        if (!is_others
            && (found->lease == nullptr
                || group[i].known_ms() < found->lease->known_ms())) {
            found->lease = &group[i];
            found->word = word;
        }
    }

    return found->lease != nullptr;
}

/* Takes them: while a lease was written, another worker has found none. */
uint64_t units_elsewhere(const Leases *leases, const Owner &owner,
                         const Lease *but, const Terms &terms)
{
    Lease *group = group_of(leases, owner);
    uint64_t units = 0;

    for (size_t i = 0; i < kLeases; i++) {
        uint64_t word = group[i].word();
        Terms others;

        if (&group[i] != but && group[i].read(owner, word, &others)
            && is_same(others, terms)
            && group[i].exchange(word, Lease::next(word))) {
            units += Lease::units(word);
        }
    }

    return units;
}

} // namespace

Leases *leases_init(void *memory, size_t bytes)
{
    if (bytes < sizeof(Leases)) {
        return nullptr;
    }

    auto *leases = static_cast<Leases *>(memory);

    leases->groups
        = (bytes - offsetof(Leases, lease)) / sizeof(leases->lease[0]);

    return leases;
}

int leases_are_of(const Policy *policy)
{
    return policy->algorithm == Algorithm::kCounter
           || policy->algorithm == Algorithm::kFixed
           || policy->algorithm == Algorithm::kTokenBucket;
}

int leases_can(const Claim *claim)
{
    return !claim->look && claim->cost > 0;
}

uint32_t leases_want(const Leases *leases, const Claim *claim, uint32_t size,
                     uint32_t needed, uint64_t now_ms)
{
    Owner owner = owner_of(*claim);
    uint64_t wanted = size - std::min(size, needed);
    Found found;

    if (!find(leases, owner, 0, &found)) {
        return size == kLeaseAuto
                       || !find_victim(leases, owner, now_ms, false, &found)
                   ? 0
                   : static_cast<uint32_t>(wanted);
    }

    if (size == kLeaseAuto) {
        wanted = demand(*claim, found.terms, Lease::units(found.word), needed,
                        now_ms);
    }

    uint64_t held
        = now_ms < found.terms.until_ms ? Lease::units(found.word) : 0;

    return static_cast<uint32_t>(wanted - std::min(held, wanted));
}

void leases_add(Leases *leases, const Claim *claim, const RemoteState *remote,
                const Verdict *verdict, uint32_t units, uint64_t sent_ms,
                uint64_t now_ms)
{
    const Policy &policy = *claim->policy;
    Owner owner = owner_of(*claim);
    Terms terms = {0,
                   0,
                   sent_ms,
                   now_ms + verdict->reset_ms,
                   uint64_t{remote->limit} << kLimitBits | verdict->remaining,
                   0};
    uint64_t held = units;

    set_part(policy, remote->now_ms, sent_ms, &terms);

    for (uint64_t i = 0; i < kRetries; i++) {
        Found found;
        uint64_t left = 0;
        uint64_t since_ms = kAgesMs;

        if (find(leases, owner, 0, &found)) {
            since_ms = sent_ms - std::min(sent_ms, found.terms.known_ms);

            if (is_same(found.terms, terms)) {
                left = Lease::units(found.word);

            } else if (found.terms.known_ms > terms.known_ms) {
                /* what we were told is over */
                return;
            }

        } else if (!find_victim(leases, owner, now_ms,
                                held > 0 && (i + 1) % kPatience > 0, &found)) {
            if (held == 0) {
                return;
            }

            /* that of this key may be under way */
            continue;
        }

        uint64_t word = Lease::next(found.word);

        if (!found.lease->exchange(found.word, word)) {
            continue;
        }

        held += left + units_elsewhere(leases, owner, found.lease, terms);
        held = std::min(held, kUnits);
        terms.past = std::min(since_ms, kAgesMs) << kUnitBits | held;

        if (found.lease->write(owner, word, terms)
            && found.lease->exchange(word, word + held)) {
            return;
        }
    }
}

int leases_spend(Leases *leases, Claim *claim, uint64_t now_ms,
                 Verdict *verdict)
{
    Owner owner = owner_of(*claim);
    Found found;

    for (uint64_t i = 0; i < kRetries; i++) {
        if (!find(leases, owner, claim->cost, &found)
            || !is_known(found.terms, now_ms)) {
            return 0;
        }

        uint64_t word = found.word - claim->cost;

        if (!found.lease->exchange(found.word, word)) {
            continue;
        }

        claim->state = origin(found.terms);

        *verdict = {};
        verdict->limit = static_cast<uint32_t>(limit(found.terms));
        verdict->remaining = static_cast<uint32_t>(std::min(
            remaining(found.terms) + Lease::units(word), limit(found.terms)));
        verdict->reset_ms
            = found.terms.reset_ms - std::min(now_ms, found.terms.reset_ms);

        return 1;
    }

    return 0;
}

void leases_return(Leases *leases, const Claim *claim, uint64_t now_ms)
{
    Owner owner = owner_of(*claim);
    Found found;

    for (uint64_t i = 0; i < kRetries; i++) {
        if (!find(leases, owner, 0, &found)) {
            /* it may be under way */
            continue;
        }

        if (!is_known(found.terms, now_ms)
            || claim->state != origin(found.terms)
            || Lease::units(found.word) + claim->cost > kUnits
            || found.lease->exchange(found.word, found.word + claim->cost)) {
            return;
        }
    }
}

uint32_t leases_held(const Leases *leases, const Claim *claim)
{
    Found found;

    return find(leases, owner_of(*claim), 1, &found)
               ? static_cast<uint32_t>(Lease::units(found.word))
               : 0;
}

void leases_forget(Leases *leases, const Claim *claim, uint64_t until_ms)
{
    Owner owner = owner_of(*claim);
    Lease *group = group_of(leases, owner);

    for (size_t i = 0; i < kLeases; i++) {
        for (uint64_t j = 0; j < kRetries; j++) {
            uint64_t word = group[i].word();
            uint64_t next = Lease::next(word);
            Terms terms;

            if (!group[i].read_any(owner.hash, word, &terms)
                || terms.known_ms > until_ms) {
                break;
            }

            if (group[i].exchange(word, next)) {
                group[i].write(owner, next, Terms());
                break;
            }
        }
    }
}

} // namespace limit_sliding
