/*
 * Copyright (C) the limit_sliding authors
 */

#include "model.hpp"

#include <algorithm>

namespace torture {

namespace {

/* "A burst counts only as far as it runs off in 49 days." */
constexpr uint64_t kBurstMs = 1ull << 32;

/*
 * "Whole requests are always exact; fractions of one are kept to between 22
 * and 32 binary digits, and rounded up: less than a thousandth of a request
 * each time."
 */
constexpr unsigned kDigits = 22;
constexpr uint64_t kThousandths = 1000;

/* What a log was given back is kept for so many parts of a window. */
constexpr uint64_t kCredits = 64;

Shares runs_off(uint32_t limit, uint64_t elapsed_ms)
{
    return static_cast<Shares>(limit) * elapsed_ms;
}

struct Place {
    uint64_t part;
    uint64_t elapsed; /* of it, 0 .. window_ms - 1: n times as fast as time */
};

/* Time in parts of a window. */
Place place_of(const Policy &policy, uint64_t offset_ms, uint64_t at_ms)
{
    uint64_t parts = policy.precision == 0 ? 1 : policy.precision;
    uint64_t steps = (at_ms + offset_ms) * parts;

    return {steps / policy.window_ms, steps % policy.window_ms};
}

uint64_t counter_weight(const Policy &policy, uint64_t offset_ms,
                        uint64_t at_ms, uint64_t own_ms, uint64_t now_ms)
{
    uint64_t parts = policy.precision == 0 ? 1 : policy.precision;
    Place now = place_of(policy, offset_ms, now_ms);
    uint64_t own = place_of(policy, offset_ms, own_ms).part;

    if (own > now.part) {
        /* all that a counter knows of its own time is the part */
        now = {own, 0};
    }

    uint64_t age = now.part - place_of(policy, offset_ms, at_ms).part;

    return age < parts    ? policy.window_ms
           : age == parts ? policy.window_ms - now.elapsed
                          : 0;
}

} // namespace

uint64_t capacity(const Policy &policy, uint32_t limit)
{
    if (!is_bucket(policy)) {
        return limit;
    }

    bool is_queue = policy.algorithm == LIMIT_SLIDING_LEAKY_BUCKET;

    if (!is_queue && policy.burst == 0) {
        return limit;
    }

    uint64_t burst = policy.burst + uint64_t{is_queue};
    uint64_t longest = limit * kBurstMs / policy.window_ms;

    return std::min(burst, longest);
}

bool is_coarse(const Policy &policy, uint32_t limit)
{
    return full(policy, limit) >> (kDigits - 1)
           > (policy.window_ms - 1) / kThousandths;
}

uint64_t weight(const Policy &policy, uint64_t offset_ms, uint64_t at_ms,
                uint64_t own_ms, uint64_t now_ms)
{
    uint64_t w = policy.window_ms;
    uint64_t later_ms = std::max(now_ms, own_ms);

    switch (policy.algorithm) {
    case LIMIT_SLIDING_LOG:
        return later_ms - at_ms < w ? w : 0;
    case LIMIT_SLIDING_FIXED:
        return (at_ms + offset_ms) / w == (later_ms + offset_ms) / w ? w : 0;
    default:
        return counter_weight(policy, offset_ms, at_ms, own_ms, now_ms);
    }
}

/* ---- windows ---- */

/* Will it leave a log's window within a 64th of that? */
bool Model::is_late(const Event &event, uint64_t now_ms) const
{
    uint64_t left_ms
        = event.at_ms + policy_.window_ms - std::max(now_ms, own_ms_);

    return policy_.algorithm == LIMIT_SLIDING_LOG
           && left_ms <= (policy_.window_ms + kCredits - 1) / kCredits;
}

Shares Model::sum(uint64_t now_ms, Side side) const
{
    Shares total = 0;

    for (const Event &e : events_) {
        uint64_t again = is_late(e, now_ms) ? e.given_back : e.kept;
        uint64_t cost = e.cost + (side == Side::most ? again : 0);

        total += static_cast<Shares>(cost)
                 * weight(policy_, offset_ms_, e.at_ms, own_ms_, now_ms);
    }

    return total;
}

/* The key's own time never goes back, so these do not count any more. */
void Model::drop_old()
{
    while (
        !events_.empty()
        && weight(policy_, offset_ms_, events_.front().at_ms, own_ms_, own_ms_)
               == 0) {
        events_.pop_front();
    }
}

/* ---- buckets ---- */

/* From the bucket's own time on. */
Shares Model::run_off(Shares level, uint64_t now_ms, uint32_t limit) const
{
    uint64_t since_ms = std::max(now_ms, levels_.own_ms) - levels_.own_ms;

    return std::max(level - runs_off(limit, since_ms), static_cast<Shares>(0));
}

Shares Model::rounded_up(Shares level) const
{
    Shares w = policy_.window_ms;
    Shares more = std::min(level >> (kDigits - 1), (w - 1) / kThousandths);
    Shares whole = (level + w - 1) / w * w;

    return std::min(level + more, whole);
}

/* "A bucket is no more than empty, whatever a higher limit had admitted." */
Shares Model::bucket_used(uint64_t now_ms, uint32_t limit, Side side) const
{
    Shares level = side == Side::least      ? levels_.least
                   : limit <= levels_.limit ? levels_.most
                                            : levels_.unclipped;

    return run_off(std::min(level, full(policy_, limit)), now_ms, limit);
}

size_t Model::pour(uint64_t now_ms, uint32_t limit, uint32_t cost)
{
    Shares more = static_cast<Shares>(cost) * policy_.window_ms;
    Levels next;

    if (run_off(levels_.unclipped, now_ms, limit) == 0) {
        /* nothing of what there was can be taken back any more */
        first_pour_ += pours_.size();
        pours_.clear();
    }

    next.own_ms = std::max(now_ms, levels_.own_ms);
    next.limit = limit;
    next.least = bucket_used(now_ms, limit, Side::least) + more;
    next.most = rounded_up(bucket_used(now_ms, limit, Side::most) + more);
    next.unclipped
        = rounded_up(run_off(levels_.unclipped, now_ms, limit) + more);

    pours_.push_back({next.own_ms, limit, cost, false, levels_});
    levels_ = next;

    return first_pour_ + pours_.size() - 1;
}

/* What the bucket had used without that which was taken back. */
void Model::replay()
{
    Shares level = pours_.front().before.least;
    uint64_t at_ms = pours_.front().before.own_ms;
    auto pass = [&](uint64_t until_ms, uint32_t limit) {
        level -= runs_off(limit, until_ms - at_ms);
        level = std::max(level, static_cast<Shares>(0));
        at_ms = until_ms;
    };

    for (const Pour &p : pours_) {
        pass(p.at_ms, p.limit);

        if (!p.is_taken_back) {
            level += static_cast<Shares>(p.cost) * policy_.window_ms;
        }
    }

    pass(levels_.own_ms, levels_.limit);
    levels_.least = level;
}

void Model::run_off_until(uint64_t now_ms)
{
    levels_.least = run_off(levels_.least, now_ms, levels_.limit);
    levels_.most = run_off(levels_.most, now_ms, levels_.limit);
    levels_.unclipped = run_off(levels_.unclipped, now_ms, levels_.limit);
    levels_.own_ms = std::max(now_ms, levels_.own_ms);
}

void Model::rewrite(uint64_t now_ms, uint32_t cost)
{
    Shares more = static_cast<Shares>(cost) * policy_.window_ms;

    if (is_bucket(policy_)) {
        run_off_until(now_ms);
        levels_.most = rounded_up(rounded_up(levels_.most + more) - more);
        levels_.unclipped
            = rounded_up(rounded_up(levels_.unclipped + more) - more);
    }
}

/*
 * If nothing else was admitted since, the bucket is as it was before.  Else it
 * may be fuller than if that had never been admitted.
 */
void Model::take_back(size_t admission, uint64_t now_ms)
{
    if (admission < first_pour_) {
        rewrite(now_ms);
        return;
    }

    run_off_until(now_ms);

    Pour &pour = pours_[admission - first_pour_];

    pour.is_taken_back = true;

    if (&pour == &pours_.back()) {
        Shares cost = static_cast<Shares>(pour.cost) * policy_.window_ms;

        levels_.most = std::max(levels_.most - cost, static_cast<Shares>(0));
    }

    replay();
    levels_.most = rounded_up(std::max(levels_.most, levels_.least));
    levels_.unclipped = levels_.most;

    while (!pours_.empty() && pours_.back().is_taken_back) {
        pours_.pop_back();
    }
}

/* ---- both ---- */

Shares Model::used(uint64_t now_ms, uint32_t limit, Side side) const
{
    return is_bucket(policy_) ? bucket_used(now_ms, limit, side)
                              : sum(now_ms, side);
}

bool Model::fits(uint64_t now_ms, uint32_t limit, uint32_t cost,
                 Side side) const
{
    return used(now_ms, limit, side)
               + static_cast<Shares>(cost) * policy_.window_ms
           <= full(policy_, limit);
}

uint64_t Model::left(uint64_t now_ms, uint32_t limit, Side side) const
{
    Shares room = full(policy_, limit) - used(now_ms, limit, side);

    return room > 0 ? static_cast<uint64_t>(room / policy_.window_ms) : 0;
}

uint64_t Model::delay_ms(uint64_t now_ms, uint32_t limit, uint32_t cost,
                         Side side) const
{
    Shares own = static_cast<Shares>(cost) * policy_.window_ms;
    Shares ahead = bucket_used(now_ms, limit, side);
    uint64_t behind_ms = std::max(now_ms, levels_.own_ms) - now_ms;

    if (side == Side::most) {
        ahead = rounded_up(ahead + own) - own;
    }

    return ahead == 0
               ? behind_ms
               : behind_ms + static_cast<uint64_t>((ahead + limit - 1) / limit);
}

size_t Model::record(uint64_t now_ms, uint32_t limit, uint32_t cost)
{
    own_ms_ = std::max(own_ms_, now_ms);

    if (is_bucket(policy_)) {
        return pour(now_ms, limit, cost);
    }

    drop_old();

    if (events_.empty() || events_.back().at_ms < own_ms_) {
        events_.push_back({own_ms_, 0, 0, 0});
    }

    events_.back().cost += cost;

    return own_ms_;
}

void Model::refund(size_t admission, uint64_t now_ms, uint32_t cost)
{
    if (is_bucket(policy_)) {
        take_back(admission, now_ms);
        return;
    }

    give_back(admission, cost);
}

/* Of rings no more than the largest limit is noted in a window. */
void Model::give_back(size_t admission, uint32_t cost)
{
    uint64_t noted = cost;

    for (const Event &e : events_) {
        noted += e.given_back;
    }

    for (Event &e : events_) {
        if (e.at_ms == admission) {
            e.cost -= cost;
            e.given_back += cost;
            e.kept += noted > LIMIT_SLIDING_LIMIT_MAX ? cost : 0;
        }
    }
}

void Model::forget()
{
    own_ms_ = 0;
    events_.clear();
    levels_ = {};
    first_pour_ += pours_.size();
    pours_.clear();
}

/* ---- what is told ---- */

const char *reset_fault(const Model &model, uint64_t now_ms,
                        const limit_sliding_verdict_t &v)
{
    uint64_t at_ms = now_ms + v.reset_ms;

    if (v.remaining == capacity(model.policy(), v.limit)) {
        return v.reset_ms == 0 ? nullptr : "a reset of what is full";
    }

    if (v.reset_ms == 0
        || model.left(at_ms, v.limit, Side::least) <= v.remaining) {
        return "the reset is too early";
    }

    return model.left(at_ms - 1, v.limit, Side::most) > v.remaining
               ? "the reset is too late"
               : nullptr;
}

const char *retry_fault(const Model &model, uint64_t now_ms, bool is_admitted,
                        uint32_t cost, const limit_sliding_verdict_t &v)
{
    uint64_t at_ms = now_ms + v.retry_after_ms;

    if (is_admitted) {
        /* a queue has an excess: what is in it */
        return v.retry_after_ms == 0
                       && (v.excess == 0
                           || model.policy().algorithm
                                  == LIMIT_SLIDING_LEAKY_BUCKET)
                   ? nullptr
                   : "a wait or an excess of what is admitted";
    }

    if (cost > capacity(model.policy(), v.limit)) {
        return v.retry_after_ms == LIMIT_SLIDING_NEVER
                   ? nullptr
                   : "a wait for what never fits";
    }

    if (v.retry_after_ms == 0 || v.retry_after_ms == LIMIT_SLIDING_NEVER
        || !model.fits(at_ms, v.limit, cost, Side::least)) {
        return "not admitted after its wait";
    }

    return model.fits(at_ms - 1, v.limit, cost, Side::most)
               ? "admitted before its wait"
               : nullptr;
}

} // namespace torture
