/*
 * Copyright (C) the limit_sliding authors
 */

#include <algorithm>
#include <cstring>

#include "counter.hpp"
#include "limiter.h"
#include "siphash.hpp"
#include "table.hpp"

using limit_sliding::Counter;
using limit_sliding::Line;
using limit_sliding::SipHash13;
using limit_sliding::Slot;
using limit_sliding::Table;

/*
 * The head of a zone's memory; lines of slots follow.  What every request
 * reads shares no cache line with what an eviction writes.
 */
struct limit_sliding_zone_s {
    uint64_t secret[2];
    uint64_t pairs;
    alignas(64) Table::Stats stats;
};

static_assert(sizeof(limit_sliding_zone_s) == LIMIT_SLIDING_ZONE_ALIGN,
              "a pair of lines starts at a multiple of 128 bytes");
static_assert(LIMIT_SLIDING_SECRET_BYTES == 16, "two words of secret");

namespace {

constexpr size_t kPairBytes = 2 * sizeof(Line);

Line *lines_of(const limit_sliding_zone_t *zone)
{
    auto memory = reinterpret_cast<uintptr_t>(zone);

    return reinterpret_cast<Line *>(memory + sizeof(*zone));
}

/* One request before a zone's algorithm: what the table asks about states. */
struct CounterStep {
    Counter counter;
    uint32_t limit;
    uint32_t cost;

    bool admit(uint64_t state, uint64_t *next) const
    {
        return counter.admit(state, limit, cost, next);
    }

    uint64_t used(uint64_t state) const { return counter.used(state); }

    uint64_t expires_ms(uint64_t state) const
    {
        return counter.expires_ms(state);
    }
};

CounterStep step_of(const limit_sliding_claim_t &claim, uint64_t now_ms)
{
    return {Counter(claim.policy->window_ms, now_ms), claim.limit, claim.cost};
}

Table table_of(const limit_sliding_claim_t &claim, const CounterStep &step)
{
    return Table(lines_of(claim.zone), claim.zone->pairs, &claim.zone->stats,
                 claim.hash, step.counter.epoch());
}

void consume(limit_sliding_claim_t *claim, uint64_t now_ms)
{
    CounterStep step = step_of(*claim, now_ms);
    Table table = table_of(*claim, step);
    Table::Result result
        = table.update(step, claim->policy->full == LIMIT_SLIDING_EVICT);

    claim->state = result.state;
    claim->outcome = result.outcome;
}

/* Decides without consuming. */
void look(limit_sliding_claim_t *claim, uint64_t now_ms)
{
    CounterStep step = step_of(*claim, now_ms);
    uint64_t next;

    claim->state = table_of(*claim, step).look();
    claim->outcome = step.admit(claim->state, &next) ? LIMIT_SLIDING_ADMITTED
                                                     : LIMIT_SLIDING_REJECTED;
}

void refund(const limit_sliding_claim_t &claim, uint64_t now_ms)
{
    CounterStep step = step_of(claim, now_ms);

    table_of(claim, step).amend([&](uint64_t state) {
        return Counter::refund(state, claim.state, claim.cost);
    });
}

bool is_admitted(const limit_sliding_claim_t &claim)
{
    return claim.outcome == LIMIT_SLIDING_ADMITTED;
}

/*
 * Looks at all, then consumes all; false if any rejected.  Out of line, as is
 * longest_wait(), for the sake of requests with one limit.
 */
[[gnu::noinline]] bool consume_all(limit_sliding_claim_t *claims, size_t n,
                                   uint64_t now_ms)
{
    bool admitted = true;

    for (size_t i = 0; i < n; i++) {
        look(&claims[i], now_ms);
        admitted &= is_admitted(claims[i]);
    }

    for (size_t i = 0; admitted && i < n; i++) {
        if (claims[i].look) {
            continue;
        }

        consume(&claims[i], now_ms);

        if (!is_admitted(claims[i])) {
            /* another request was faster since we looked */
            admitted = false;
            while (i > 0) {
                if (!claims[--i].look) {
                    refund(claims[i], now_ms);
                }
            }
        }
    }

    return admitted;
}

[[gnu::noinline]] size_t longest_wait(const limit_sliding_claim_t *claims,
                                      size_t n, uint64_t now_ms)
{
    size_t longest = n;
    uint64_t longest_ms = 0;

    for (size_t i = 0; i < n; i++) {
        if (!is_admitted(claims[i])) {
            limit_sliding_verdict_t verdict;

            limit_sliding_claim_describe(&claims[i], now_ms, &verdict);

            if (longest == n || verdict.retry_after_ms > longest_ms) {
                longest = i;
                longest_ms = verdict.retry_after_ms;
            }
        }
    }

    return longest;
}

} // namespace

int limit_sliding_admit(const limit_sliding_policy_t *policy,
                        limit_sliding_state_t state, uint64_t now_ms,
                        uint32_t limit, uint32_t cost,
                        limit_sliding_state_t *next)
{
    return Counter(policy->window_ms, now_ms).admit(state, limit, cost, next);
}

limit_sliding_state_t limit_sliding_refund(const limit_sliding_policy_t *,
                                           limit_sliding_state_t state,
                                           limit_sliding_state_t recorded,
                                           uint32_t cost)
{
    return Counter::refund(state, recorded, cost);
}

void limit_sliding_describe(const limit_sliding_policy_t *policy,
                            limit_sliding_state_t state, uint64_t now_ms,
                            uint32_t limit, uint32_t cost,
                            limit_sliding_verdict_t *verdict)
{
    Counter(policy->window_ms, now_ms).describe(state, limit, cost, verdict);
}

uint64_t limit_sliding_seconds(uint64_t ms)
{
    return ms / 1000 + (ms % 1000 != 0);
}

uint64_t limit_sliding_expires_ms(const limit_sliding_policy_t *policy,
                                  limit_sliding_state_t state, uint64_t now_ms)
{
    return Counter(policy->window_ms, now_ms).expires_ms(state);
}

limit_sliding_zone_t *limit_sliding_zone_init(
    void *memory, size_t bytes,
    const uint8_t secret[LIMIT_SLIDING_SECRET_BYTES])
{
    if (bytes < sizeof(limit_sliding_zone_t) + kPairBytes) {
        return nullptr;
    }

    auto zone = static_cast<limit_sliding_zone_t *>(memory);

    std::memcpy(zone->secret, secret, sizeof(zone->secret));
    zone->pairs = (bytes - sizeof(*zone)) / kPairBytes;

    return zone;
}

uint64_t limit_sliding_zone_hash(const limit_sliding_zone_t *zone,
                                 const void *key, size_t bytes)
{
    return SipHash13(zone->secret[0], zone->secret[1]).hash(key, bytes);
}

void limit_sliding_zone_stats(const limit_sliding_zone_t *zone,
                              limit_sliding_zone_stats_t *stats)
{
    stats->slots = zone->pairs * 2 * Line::kSlots;
    stats->evicted = zone->stats.evicted.load(std::memory_order_relaxed);
    stats->refused = zone->stats.refused.load(std::memory_order_relaxed);
}

uint64_t limit_sliding_zone_count(const limit_sliding_zone_t *zone,
                                  const limit_sliding_policy_t *policy,
                                  uint64_t now_ms)
{
    limit_sliding_claim_t any = {};

    any.zone = const_cast<limit_sliding_zone_t *>(zone);
    any.policy = policy;

    CounterStep step = step_of(any, now_ms);
    Table table = table_of(any, step);
    uint64_t count = 0;

    for (uint64_t i = 0; i < 2 * zone->pairs; i++) {
        for (Slot &slot : lines_of(zone)[i].slot) {
            count += table.is_live(slot, step);
        }
    }

    return count;
}

size_t limit_sliding_acquire(limit_sliding_claim_t *claims, size_t n,
                             uint64_t now_ms)
{
    if (n == 1 && !claims->look) {
        consume(claims, now_ms);
        return 0;
    }

    return consume_all(claims, n, now_ms)
               ? limit_sliding_tightest(claims, n, now_ms)
               : longest_wait(claims, n, now_ms);
}

size_t limit_sliding_tightest(const limit_sliding_claim_t *claims, size_t n,
                              uint64_t now_ms)
{
    size_t least = 0;
    double most_used = -1;

    for (size_t i = 0; i < n; i++) {
        uint64_t window_ms = claims[i].policy->window_ms;
        uint64_t used = Counter(window_ms, now_ms).used(claims[i].state);
        double share = static_cast<double>(used)
                       / static_cast<double>(claims[i].limit * window_ms);

        if (share > most_used) {
            most_used = share;
            least = i;
        }
    }

    return least;
}

void limit_sliding_claim_describe(const limit_sliding_claim_t *claim,
                                  uint64_t now_ms,
                                  limit_sliding_verdict_t *verdict)
{
    switch (claim->outcome) {
    case LIMIT_SLIDING_ADMITTED:
        limit_sliding_describe(claim->policy, claim->state, now_ms,
                               claim->limit, 0, verdict);
        break;

    case LIMIT_SLIDING_REJECTED:
        limit_sliding_describe(claim->policy, claim->state, now_ms,
                               claim->limit, claim->cost, verdict);
        break;

    case LIMIT_SLIDING_REFUSED:
        verdict->limit = claim->limit;
        verdict->remaining = 0;
        verdict->excess = 0;
        verdict->retry_after_ms = std::max<uint64_t>(
            1, limit_sliding_expires_ms(claim->policy, claim->state, now_ms));
        verdict->reset_ms = verdict->retry_after_ms;
        verdict->delay_ms = 0;
        break;
    }
}
