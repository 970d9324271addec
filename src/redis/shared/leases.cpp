/* Copyright (C) the limit_sliding authors */

#include "redis/shared/leases.hpp"

#include <algorithm>

#include "core/base/hashes.hpp"

namespace limit_sliding {

namespace {

constexpr uint64_t kRetries = 512;

/* One of this many attempts overwrites a lease that is being written: its writer may be dead. */
constexpr uint64_t kPatience = 64;

LeaseOwner owner_of(const Claim &claim) { return {mixed(claim.hash), claim.limit}; }

} // namespace

struct Leases::Found {
    Lease *lease;
    uint64_t word;
    LeaseTerms terms;
};

Leases::Group &Leases::group_of(const LeaseOwner &owner) const {
    uint64_t number = (owner.hash >> 32) * groups_ >> 32;
    return reinterpret_cast<Group *>(const_cast<Leases *>(this) + 1)[number];
}

/* Finds the owner's lease with at least this many units. */
bool Leases::find(const LeaseOwner &owner, uint64_t units, Found *found) const {
    for (Lease &lease : group_of(owner)) {
        found->lease = &lease;
        found->word = lease.word();

        if (Lease::units(found->word) >= units
            && lease.read(owner.hash, found->word, &found->terms) == owner.limit) {
            return true;
        }
    }

    return false;
}

/* Chooses the lease that a new key overwrites, the one whose Redis was asked first.  Returns false
 * if other keys use all leases of the group.  A patient caller leaves a lease that is being written
 * to its writer. */
bool Leases::choose_slot(const LeaseOwner &owner, uint64_t now_ms, bool patient,
                         Found *found) const {
    found->lease = nullptr;

    for (Lease &lease : group_of(owner)) {
        uint64_t word = lease.word();
        bool is_others = lease.is_whole(word) ? lease.is_in_use(now_ms) : patient;

        if (!is_others
            && (found->lease == nullptr || lease.known_ms() < found->lease->known_ms())) {
            found->lease = &lease;
            found->word = word;
        }
    }

    return found->lease != nullptr;
}

/* Takes the units of the key's other lease, if its terms are the same, and returns their number.  A
 * key has a second lease if a worker found none while another worker was writing the first. */
uint64_t Leases::take_others(const LeaseOwner &owner, const Lease *but, const LeaseTerms &terms) {
    uint64_t units = 0;

    for (Lease &lease : group_of(owner)) {
        uint64_t word = lease.word();
        LeaseTerms others;

        if (&lease != but && lease.read(owner.hash, word, &others) == owner.limit
            && others.is_same(terms) && lease.exchange(word, Lease::next(word))) {
            units += Lease::units(word);
        }
    }

    return units;
}

Leases *Leases::init(void *memory, size_t bytes) {
    if (bytes < sizeof(Leases) + sizeof(Group)) { return nullptr; }

    auto *leases = static_cast<Leases *>(memory);

    leases->groups_ = (bytes - sizeof(Leases)) / sizeof(Group);
    return leases;
}

bool Leases::can_serve(const Policy &policy) {
    return policy.algorithm == Algorithm::kCounter || policy.algorithm == Algorithm::kFixed
           || policy.algorithm == Algorithm::kTokenBucket;
}

bool Leases::can_serve(const Claim &claim) {
    return claim.purpose == Purpose::kConsume && claim.cost > 0;
}

uint32_t Leases::want(const Claim &claim, uint32_t size, uint32_t needed, uint64_t now_ms) const {
    LeaseOwner owner = owner_of(claim);
    uint64_t wanted = size - std::min(size, needed);
    Found found;

    if (!find(owner, 0, &found)) {
        bool is_free = size != kLeaseAuto && choose_slot(owner, now_ms, false, &found);
        return is_free ? static_cast<uint32_t>(wanted) : 0;
    }

    if (size == kLeaseAuto) {
        wanted = found.terms.demand(claim, Lease::units(found.word), needed, now_ms);
        wanted = std::min(wanted, kUnits);
    }

    uint64_t held = now_ms < found.terms.until_ms ? Lease::units(found.word) : 0;
    return static_cast<uint32_t>(wanted - std::min(held, wanted));
}

void Leases::add(const Claim &claim, const RemoteState &remote, const Verdict &verdict,
                 uint64_t units, uint64_t sent_ms, uint64_t now_ms) {
    LeaseOwner owner = owner_of(claim);
    LeaseTerms terms{};
    uint64_t held = units;

    terms.known_ms = sent_ms;
    terms.reset_ms = now_ms + verdict.reset_ms;
    terms.limit = remote.limit;
    terms.remaining = verdict.remaining;
    terms.set_end(*claim.policy, remote, sent_ms);

    for (uint64_t i = 0; i < kRetries; i++) {
        Found found;
        uint64_t left = 0;
        uint64_t since_ms = kAgesMs;

        if (find(owner, 0, &found)) {
            since_ms = sent_ms - std::min(sent_ms, found.terms.known_ms);

            if (found.terms.is_same(terms)) {
                left = Lease::units(found.word);

            } else if (found.terms.known_ms > terms.known_ms) {
                /* the lease has the terms of a later call */
                return;
            }

        } else if (!choose_slot(owner, now_ms, held > 0 && (i + 1) % kPatience > 0, &found)) {
            if (held == 0) { return; }

            /* another worker may be writing this key's lease */
            continue;
        }

        uint64_t word = Lease::next(found.word);

        if (!found.lease->exchange(found.word, word)) { continue; }

        held += left + take_others(owner, found.lease, terms);
        held = std::min(held, kUnits);
        terms.before_ms = std::min(since_ms, kAgesMs);
        terms.granted = held;

        if (found.lease->write(owner, word, terms) && found.lease->exchange(word, word + held)) {
            return;
        }
    }
}

bool Leases::spend(Claim *claim, uint64_t now_ms, Verdict *verdict) {
    LeaseOwner owner = owner_of(*claim);
    Found found;

    for (uint64_t i = 0; i < kRetries; i++) {
        if (!find(owner, claim->cost, &found) || !found.terms.is_known(now_ms)) { return false; }

        uint64_t word = found.word - claim->cost;

        if (!found.lease->exchange(found.word, word)) { continue; }

        claim->state = found.terms.origin();

        *verdict = {};
        verdict->limit = found.terms.limit;
        verdict->remaining
            = std::min(found.terms.remaining + Lease::units(word), found.terms.limit);
        verdict->reset_ms = found.terms.reset_ms - std::min(now_ms, found.terms.reset_ms);
        return true;
    }

    return false;
}

void Leases::give_back(const Claim &claim, uint64_t now_ms) {
    LeaseOwner owner = owner_of(claim);
    Found found;

    for (uint64_t i = 0; i < kRetries; i++) {
        if (!find(owner, 0, &found)) {
            /* another worker may be writing the lease, or has overwritten it */
            if (i < kPatience) { continue; }
            return;
        }

        if (!found.terms.is_known(now_ms) || claim.state != found.terms.origin()
            || Lease::units(found.word) + claim.cost > kUnits
            || found.lease->exchange(found.word, found.word + claim.cost)) {
            return;
        }
    }
}

uint32_t Leases::held(const Claim &claim) const {
    Found found;
    return find(owner_of(claim), 1, &found) ? static_cast<uint32_t>(Lease::units(found.word)) : 0;
}

void Leases::forget(const Claim &claim, uint64_t until_ms) {
    LeaseOwner owner = owner_of(claim);

    for (Lease &lease : group_of(owner)) {
        for (uint64_t i = 0; i < kRetries; i++) {
            uint64_t word = lease.word();
            uint64_t next = Lease::next(word);
            LeaseTerms terms;

            if (lease.read(owner.hash, word, &terms) > kRemoteMax || terms.known_ms > until_ms) {
                break;
            }

            if (lease.exchange(word, next)) {
                lease.write(owner, next, LeaseTerms());
                break;
            }
        }
    }
}

} // namespace limit_sliding
