/* Copyright (C) the limit_sliding authors */

#include "redis/logic/remote.hpp"

#include <algorithm>

#include "core/describe.hpp"
#include "redis/logic/counter_parts.hpp"

namespace limit_sliding {

namespace {

/* One request for a key, as the script has found it. */
struct Request {
    const Policy &policy;
    const RemoteState &remote;
    uint64_t limit;
    uint64_t cost;  /* 0 if it was admitted: what was wanted is used */
    uint64_t spent; /* of this call */

    uint64_t window_ms() const { return policy.window_ms; }

    uint64_t value() const { return static_cast<uint64_t>(remote.values[0]); }

    /* Returns the ms until an event of that time expires; negative: it is now. */
    uint64_t event_wait_ms(int64_t time_ms) const {
        uint64_t then_ms = time_ms < 0 ? remote.now_ms : static_cast<uint64_t>(time_ms);
        uint64_t end_ms = then_ms + window_ms();

        return end_ms > remote.now_ms ? end_ms - remote.now_ms : 1;
    }

    void describe_counter(Verdict *verdict) const {
        CounterParts parts(policy, remote.now_ms, remote.values, spent);

        describe_usage(
            {remote.limit, limit, window_ms(), parts.used(), limit * window_ms()}, cost,
            [&](uint64_t room) { return parts.wait_ms(room); }, verdict);
    }

    void describe_fixed(Verdict *verdict) const {
        uint64_t left_ms = window_ms() - remote.now_ms % window_ms();

        describe_usage(
            {remote.limit, limit, 1, value() + spent, limit}, cost,
            [&](uint64_t) { return left_ms; }, verdict);
    }

    void describe_log(Verdict *verdict) const {
        uint64_t used = value() + spent;

        auto wait_ms = [&](uint64_t room) {
            bool is_first = room + 1 == std::min(used, limit);

            return event_wait_ms(remote.values[is_first ? 1 : 2]);
        };

        describe_usage({remote.limit, limit, 1, used, limit}, cost, wait_ms, verdict);
    }

    /* `queued` is the cost of a request that was admitted to a queue, else 0. */
    void describe_bucket(uint64_t queued, Verdict *verdict) const {
        uint64_t capacity = policy.capacity(remote.limit);
        uint64_t full = capacity * window_ms();
        uint64_t used = value() + spent * window_ms();
        bool is_queue = policy.algorithm == Algorithm::kLeakyBucket;

        auto wait_ms = [&](uint64_t taken) { return (taken + limit - 1) / limit; };

        /* no more than the whole bucket is used, but an excess has to run off */
        Usage usage = {remote.limit, capacity, window_ms(), std::min(used, full),
                       is_queue ? window_ms() : full};
        auto wait_for = [&](uint64_t room) { return wait_ms(used - room * window_ms()); };

        describe_usage(usage, cost, wait_for, verdict);

        if (is_queue && queued > 0) {
            uint64_t ahead = used - std::min(used, queued * window_ms());

            verdict->delay_ms = wait_ms(ahead);
            verdict->excess = thousandths(ahead + (queued - 1) * window_ms(), window_ms());
        }
    }
};

} // namespace

unsigned remote_values(const Policy &policy) {
    switch (policy.algorithm) {
    case Algorithm::kCounter:
        return std::max(policy.precision, 1u) + 1;
    case Algorithm::kLog:
        return 3;
    default:
        return 1;
    }
}

Verdict RemoteState::describe(const Policy &policy, uint64_t cost, uint32_t granted, bool admitted,
                              bool look) const {
    uint64_t spent = look ? 0 : (granted + uint64_t{admitted}) * cost;
    Request request = {policy, *this, limit, admitted ? 0 : cost, spent};

    Verdict verdict;

    switch (policy.algorithm) {
    case Algorithm::kLog:
        request.describe_log(&verdict);
        break;
    case Algorithm::kFixed:
        request.describe_fixed(&verdict);
        break;
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
        request.describe_bucket(admitted && !look ? cost : 0, &verdict);
        break;
    default:
        request.describe_counter(&verdict);
    }

    return verdict;
}

} // namespace limit_sliding
