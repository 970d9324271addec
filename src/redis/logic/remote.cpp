/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/logic/remote.hpp"

#include <algorithm>

#include "redis/logic/parts.hpp"

namespace limit_sliding {

namespace {

struct Request {
    const Policy &policy;
    const RemoteState &remote;
    uint64_t window_ms;
    uint64_t limit;
    uint64_t cost;  /* 0 if it was admitted: what was wanted is used */
    uint64_t spent; /* of this call */
};

uint64_t thousandths(uint64_t request_ms, uint64_t window_ms)
{
    return request_ms / window_ms * 1000
           + (request_ms % window_ms * 1000 + window_ms - 1) / window_ms;
}

uint64_t value(const Request &request, unsigned i)
{
    return static_cast<uint64_t>(request.remote.values[i]);
}

void describe_counter(const Request &request, Verdict *verdict)
{
    Parts parts(request.policy, request.remote.now_ms, request.remote.values,
                request.spent);
    uint64_t used = parts.used();
    uint64_t full = request.limit * request.window_ms;
    uint64_t wanted = used + request.cost * request.window_ms;

    verdict->remaining
        = used >= full
              ? 0
              : static_cast<uint32_t>((full - used) / request.window_ms);
    verdict->excess
        = wanted > full ? thousandths(wanted - full, request.window_ms) : 0;
    verdict->reset_ms
        = verdict->remaining == request.limit
              ? 0
              : parts.wait_ms(request.limit - verdict->remaining - 1);
    verdict->retry_after_ms
        = parts.wait_ms(request.limit - std::min(request.cost, request.limit));
}

/* Of whole requests, which are free again at the times given. */
void describe_whole(const Request &request, uint64_t used, uint64_t reset_ms,
                    uint64_t retry_after_ms, Verdict *verdict)
{
    uint64_t wanted = used + request.cost;

    verdict->remaining = used < request.limit
                             ? static_cast<uint32_t>(request.limit - used)
                             : 0;
    verdict->excess
        = wanted > request.limit ? (wanted - request.limit) * 1000 : 0;
    verdict->reset_ms = used == 0 ? 0 : reset_ms;
    verdict->retry_after_ms = wanted > request.limit ? retry_after_ms : 0;
}

void describe_fixed(const Request &request, Verdict *verdict)
{
    uint64_t left_ms
        = request.window_ms - request.remote.now_ms % request.window_ms;

    describe_whole(request, value(request, 0) + request.spent, left_ms, left_ms,
                   verdict);
}

/* Until an event has expired; without one, one of now. */
uint64_t event_wait_ms(const Request &request, int64_t time_ms)
{
    uint64_t now_ms = request.remote.now_ms;
    uint64_t end_ms = (time_ms < 0 ? now_ms : static_cast<uint64_t>(time_ms))
                      + request.window_ms;

    return end_ms > now_ms ? end_ms - now_ms : 1;
}

void describe_log(const Request &request, Verdict *verdict)
{
    describe_whole(request, value(request, 0) + request.spent,
                   event_wait_ms(request, request.remote.values[1]),
                   event_wait_ms(request, request.remote.values[2]), verdict);
}

void describe_bucket(const Request &request, uint32_t cost, bool admitted,
                     Verdict *verdict)
{
    uint64_t window_ms = request.window_ms;
    uint64_t capacity
        = request.policy.capacity(static_cast<uint32_t>(request.limit));
    bool is_queue = request.policy.algorithm == Algorithm::kLeakyBucket;
    uint64_t full = capacity * window_ms;
    uint64_t used = value(request, 0) + request.spent * window_ms;
    uint64_t needed = used + request.cost * window_ms;
    /* a bucket is no more than empty, but a rest may have to run off before */
    uint64_t wanted = std::min(used, full) + request.cost * window_ms;
    uint64_t fits = is_queue ? window_ms : full;

    auto wait_ms = [&](uint64_t taken) {
        return (taken + request.limit - 1) / request.limit;
    };

    verdict->remaining
        = static_cast<uint32_t>((full - std::min(used, full)) / window_ms);
    verdict->excess = wanted > fits ? thousandths(wanted - fits, window_ms) : 0;
    verdict->reset_ms
        = verdict->remaining == capacity
              ? 0
              : wait_ms(used - (capacity - verdict->remaining - 1) * window_ms);
    verdict->retry_after_ms = wanted > full ? wait_ms(needed - full) : 0;

    if (admitted && is_queue && cost > 0) {
        uint64_t ahead = used - std::min(used, cost * window_ms);

        verdict->delay_ms = wait_ms(ahead);
        verdict->excess
            = thousandths(ahead + (cost - 1) * window_ms, window_ms);
    }
}

} // namespace

unsigned remote_values(const Policy &policy)
{
    switch (policy.algorithm) {
    case Algorithm::kCounter:
        return std::max(policy.precision, 1u) + 1;
    case Algorithm::kLog:
        return 3;
    default:
        return 1;
    }
}

Verdict RemoteState::describe(const Policy &policy, uint32_t cost,
                              uint32_t granted, bool admitted, bool look) const
{
    uint64_t spent = look ? 0 : (granted + uint64_t{admitted}) * uint64_t{cost};
    Request request
        = {policy, *this, policy.window_ms, limit, admitted ? 0 : cost, spent};
    Verdict verdict = {};

    verdict.limit = limit;

    switch (policy.algorithm) {
    case Algorithm::kLog:
        describe_log(request, &verdict);
        break;
    case Algorithm::kFixed:
        describe_fixed(request, &verdict);
        break;
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
        describe_bucket(request, cost, admitted && !look, &verdict);
        break;
    default:
        describe_counter(request, &verdict);
        break;
    }

    if (!admitted && cost > policy.capacity(limit)) {
        verdict.retry_after_ms = kNever;
    }

    return verdict;
}

} // namespace limit_sliding
