/* Copyright (C) the limit_sliding authors */

#include "model.hpp"

#include <algorithm>

namespace torture {

namespace {

/* "A burst counts only as far as it runs off in 49 days." */
constexpr uint64_t kBurstMs = 1ull << 32;

/*
 * Of a bucket, "time and `used` share a word, where `used` x w has 23 to 33
 * binary digits, fewer the longer a bucket may take to fill."
 */
constexpr unsigned kWordDigits = 57;
constexpr unsigned kTimeDigitsMin = 24;
constexpr unsigned kTimeDigitsMax = 34;

/* What a log was given back is kept for so many parts of a window. */
constexpr uint64_t kRefunds = 64;

Shares runs_off(uint32_t limit, uint64_t elapsed_ms) {
    return static_cast<Shares>(limit) * elapsed_ms;
}

unsigned digits_of(uint64_t n) { return n == 0 ? 0 : 1 + digits_of(n / 2); }

unsigned time_digits(const Policy &policy) {
    unsigned digits = digits_of(policy.window_ms) + digits_of(policy.burst) + 2;

    return std::min(std::max(digits, kTimeDigitsMin), kTimeDigitsMax);
}

/* So much a bucket keeps to a share. */
Shares exact_shares(const Policy &policy) {
    return (static_cast<Shares>(1) << (kWordDigits - time_digits(policy))) - 1;
}

uint64_t bucket_size(const Policy &policy, uint32_t limit) {
    bool is_queue = policy.algorithm == Algorithm::kLeakyBucket;

    return !is_queue && policy.burst == 0 ? limit : policy.burst + uint64_t{is_queue};
}

/*
 * What is more is rounded up to steps of less than this: of a bucket with a
 * burst 2^-22 or less, of one that holds the limit four times as much, as
 * limits of as many octal digits have the same steps.
 */
Shares step_of(const Policy &policy, uint32_t limit) {
    uint64_t size = bucket_size(policy, limit);
    unsigned digits
        = kWordDigits - time_digits(policy) - (size == limit && policy.burst == 0 ? 3 : 1);

    return (static_cast<Shares>(size) * policy.window_ms >> digits) + 1;
}

/* After so long a bucket is empty, whatever the limit is. */
uint64_t longest_ms(const Policy &policy) {
    return std::min(bucket_size(policy, 1) * policy.window_ms, kBurstMs);
}

struct Place {
    uint64_t part;
    uint64_t elapsed; /* of it, 0 .. window_ms - 1: n times as fast as time */
};

/* Time in parts of a window. */
Place place_of(const Policy &policy, uint64_t offset_ms, uint64_t at_ms) {
    uint64_t parts = policy.precision == 0 ? 1 : policy.precision;
    uint64_t steps = (at_ms + offset_ms) * parts;

    return {steps / policy.window_ms, steps % policy.window_ms};
}

uint64_t counter_weight(const Policy &policy, uint64_t offset_ms, uint64_t at_ms, uint64_t own_ms,
                        uint64_t now_ms) {
    uint64_t parts = policy.precision == 0 ? 1 : policy.precision;
    Place now = place_of(policy, offset_ms, now_ms);
    uint64_t own = place_of(policy, offset_ms, own_ms).part;

    if (own > now.part) {
        /* all that a counter knows of its own time is the part */
        now = {own, 0};
    }

    uint64_t age = now.part - place_of(policy, offset_ms, at_ms).part;

    if (age == parts && !policy.strict) { return policy.window_ms - now.elapsed; }

    return age <= parts ? policy.window_ms : 0;
}

} // namespace

uint64_t capacity(const Policy &policy, uint32_t limit) {
    if (!is_bucket(policy)) { return limit; }

    bool is_queue = policy.algorithm == Algorithm::kLeakyBucket;

    if (!is_queue && policy.burst == 0) { return limit; }

    uint64_t burst = policy.burst + uint64_t{is_queue};
    uint64_t longest = limit * kBurstMs / policy.window_ms;

    return std::min(burst, longest);
}

bool is_coarse(const Policy &policy, uint32_t limit) {
    return full(policy, limit) > exact_shares(policy);
}

uint64_t weight(const Policy &policy, uint64_t offset_ms, uint64_t at_ms, uint64_t own_ms,
                uint64_t now_ms) {
    uint64_t w = policy.window_ms;
    uint64_t later_ms = std::max(now_ms, own_ms);

    switch (policy.algorithm) {
    case Algorithm::kLog:
        return later_ms - at_ms < w ? w : 0;
    case Algorithm::kFixed:
        return (at_ms + offset_ms) / w == (later_ms + offset_ms) / w ? w : 0;
    default:
        return counter_weight(policy, offset_ms, at_ms, own_ms, now_ms);
    }
}

/* ---- windows ---- */

/* Will it leave a log's window within a 64th of that? */
bool Model::is_late(const Event &event, uint64_t now_ms) const {
    uint64_t left_ms = event.at_ms + policy_.window_ms - std::max(now_ms, own_ms_);

    return policy_.algorithm == Algorithm::kLog
           && left_ms <= (policy_.window_ms + kRefunds - 1) / kRefunds;
}

Shares Model::sum(uint64_t now_ms, Side side) const {
    Shares total = 0;

    for (const Event &e : events_) {
        uint64_t again = is_late(e, now_ms) ? e.given_back : e.kept;
        uint64_t cost = e.cost + (side == Side::most ? again : 0);

        total += static_cast<Shares>(cost) * weight(policy_, offset_ms_, e.at_ms, own_ms_, now_ms);
    }

    return total;
}

/* The key's own time never goes back, so these do not count any more. */
void Model::drop_old() {
    while (!events_.empty()
           && weight(policy_, offset_ms_, events_.front().at_ms, own_ms_, own_ms_) == 0) {
        events_.pop_front();
    }
}

/* ---- buckets ---- */

bool Model::is_certain(const Levels &levels) {
    return levels.least.at_ms == levels.most.at_ms && levels.least.used == levels.most.used;
}

/*
 * If it is not known as of which time a request is recorded, a clock that is
 * behind the later of both times sees what runs off between them, or does not.
 */
Shares Model::at_clock(const Levels &levels, uint64_t now_ms, Side side) const {
    uint64_t least_ms = std::max(now_ms, levels.least.at_ms);
    uint64_t most_ms = std::max(now_ms, levels.most.at_ms);
    Shares between = most_ms > least_ms ? runs_off(levels.limit, most_ms - least_ms) : 0;

    return side == Side::least ? levels.least.used - between : levels.most.used + between;
}

/*
 * "If `used` is rounded, a change of the limit may move it by one step up or
 * down."
 */
Shares Model::seen(const Levels &levels, uint64_t now_ms, uint32_t limit, Side side) const {
    Shares used = at_clock(levels, now_ms, side);

    if (limit == levels.limit || levels.most.used <= exact_shares(policy_)) { return used; }

    return side == Side::most ? used + levels.step
                              : std::max(used - levels.step, static_cast<Shares>(0));
}

/*
 * "A bucket is no more than empty, whatever a higher limit had admitted."  That
 * is set aside in whole milliseconds.  How many these are is known if the level
 * is.
 */
Shares Model::left_of(const Levels &levels, uint64_t now_ms, uint32_t limit, Side side) const {
    const Level &level = side == Side::least ? levels.least : levels.most;
    Shares all = full(policy_, limit);
    Shares used = seen(levels, now_ms, limit, side);
    uint64_t since_ms = std::max(now_ms, level.at_ms) - level.at_ms;

    /* the rest of a millisecond, where the table may have forgotten the state */
    if (side == Side::least && since_ms >= longest_ms(policy_)) { return 0; }

    if (used > all) {
        used = is_certain(levels)
                       && seen(levels, now_ms, limit, Side::most)
                              == seen(levels, now_ms, limit, Side::least)
                   ? all + (used - all) % limit
               : side == Side::least ? all
                                     : std::min(used, all + limit - 1);
    }

    return std::max(used - runs_off(limit, since_ms), static_cast<Shares>(0));
}

Shares Model::bucket_used(uint64_t now_ms, uint32_t limit, Side side) const {
    Shares used = left_of(cases_[0], now_ms, limit, side);

    for (const Levels &levels : cases_) {
        Shares other = left_of(levels, now_ms, limit, side);

        used = side == Side::least ? std::min(used, other) : std::max(used, other);
    }

    return used;
}

/* What is left of what is more than an empty bucket, in whole milliseconds. */
Shares Model::set_aside(const Levels &levels, uint64_t now_ms, uint32_t limit, Side side) const {
    const Level &level = side == Side::least ? levels.least : levels.most;
    uint64_t since_ms = std::max(now_ms, level.at_ms) - level.at_ms;
    Shares used = seen(levels, now_ms, limit, side);

    if (used < full(policy_, limit) + limit || since_ms >= longest_ms(policy_)) { return 0; }

    Shares rest = std::max(used - runs_off(limit, since_ms), static_cast<Shares>(0))
                  - left_of(levels, now_ms, limit, side);

    if (side == Side::most
        || (is_certain(levels) && used == seen(levels, now_ms, limit, Side::most))) {
        rest += limit - 1;
    }

    return rest > 0 ? rest / limit * limit : 0;
}

/*
 * What is admitted beside what is set aside "must not shorten" that.  It counts
 * as of the time when the bucket was empty, so that to a higher limit the time
 * since "may run off yet".
 */
Model::Level Model::backdated(Level level, uint32_t limit, Shares aside) const {
    Shares room = full(policy_, limit) - level.used;
    Shares since_ms = room > 0 ? (room + limit - 1) / limit : static_cast<Shares>(0);

    since_ms = std::min(since_ms, static_cast<Shares>(level.at_ms));

    return {level.at_ms - static_cast<uint64_t>(since_ms), level.used + since_ms * limit + aside};
}

/*
 * "That happens once: until the bucket has been empty, all that follows stays
 * on such steps": it is less than a step above the truth, however often it is
 * rounded.  It may happen once more if the truth is not known, if some of it
 * was set aside, and when the time that is kept begins anew.  A whole request
 * is never passed.  What such a request cuts off a step may be added later, as
 * that is where the steps are.  So may all of a step if it is not yet rounded.
 */
void Model::round_up(Levels *levels, bool may_again) const {
    Shares w = policy_.window_ms;
    Shares most = levels->most.used;
    Shares whole = (most + w - 1) / w * w;

    Shares up = may_again ? most + levels->step
                          : std::max(levels->least.used + levels->step, most + levels->cut);

    if (most > exact_shares(policy_)) { levels->most.used = std::max(most, std::min(up, whole)); }

    levels->cut = std::max(up - levels->most.used, static_cast<Shares>(0));
}

/* Does the time that is kept begin anew between these? */
bool Model::begins_anew(uint64_t former_ms, uint64_t at_ms) const {
    unsigned digits = time_digits(policy_);

    return at_ms >> digits != former_ms >> digits;
}

/* What a request makes of it if it is recorded as now, or as of before. */
Model::Levels Model::poured(const Levels &levels, uint64_t now_ms, uint32_t limit, uint32_t cost,
                            bool is_backdated) const {
    Shares more = static_cast<Shares>(cost) * policy_.window_ms;
    Levels next;

    next.least.at_ms = std::max(now_ms, levels.least.at_ms);
    next.most.at_ms = std::max(now_ms, levels.most.at_ms);
    next.least.used = left_of(levels, now_ms, limit, Side::least) + more;
    next.most.used = left_of(levels, now_ms, limit, Side::most) + more;
    next.limit = limit;
    next.step = step_of(policy_, limit);
    next.cut = levels.cut;

    if (is_backdated) {
        next.step = std::max(next.step, levels.step);
        next.least = backdated(next.least, limit, set_aside(levels, now_ms, limit, Side::least));
        next.most = backdated(next.most, limit, set_aside(levels, now_ms, limit, Side::most));
    }

    round_up(&next, next.least.at_ms != next.most.at_ms
                        || (levels.limit != limit && levels.limit != 0)
                        || levels.most.used > full(policy_, limit)
                        || begins_anew(levels.most.at_ms, next.most.at_ms));

    return next;
}

/* What is recorded as of the same time is taken for one case. */
void Model::add_case(std::vector<Levels> *cases, const Levels &added) {
    for (Levels &c : *cases) {
        if (c.least.at_ms == added.least.at_ms && c.most.at_ms == added.most.at_ms) {
            c.least.used = std::min(c.least.used, added.least.used);
            c.most.used = std::max(c.most.used, added.most.used);
            c.step = std::max(c.step, added.step);
            c.cut = std::max(c.cut, added.cut);
            return;
        }
    }

    cases->push_back(added);
}

/*
 * If `used` is rounded, it may not be known whether anything is set aside: then
 * both is possible.
 */
size_t Model::pour(uint64_t now_ms, uint32_t limit, uint32_t cost) {
    std::vector<Levels> next;

    if (bucket_used(now_ms, limit, Side::most) == 0) { is_loose_ = false; }

    for (const Levels &levels : cases_) {
        bool least = set_aside(levels, now_ms, limit, Side::least) > 0;
        bool most = set_aside(levels, now_ms, limit, Side::most) > 0;

        if (!least || !most) { add_case(&next, poured(levels, now_ms, limit, cost, false)); }

        if (least || most) { add_case(&next, poured(levels, now_ms, limit, cost, true)); }
    }

    cases_ = next;
    pours_.push_back({cases_[0].most.at_ms, limit, cost, false, cases_[0]});

    return pours_.size() - 1;
}

/* What the bucket had used without that which was taken back. */
Shares Model::replay() const {
    Shares level = 0;
    uint64_t at_ms = 0;

    for (const Pour &p : pours_) {
        level -= runs_off(p.limit, p.at_ms - at_ms);
        level = std::max(level, static_cast<Shares>(0));
        at_ms = p.at_ms;

        if (!p.is_taken_back) { level += static_cast<Shares>(p.cost) * policy_.window_ms; }
    }

    return level;
}

/* Precondition: the key's limit never changed. */
void Model::rewrite(uint64_t now_ms, uint32_t cost) {
    Levels &levels = cases_[0];
    Shares more = static_cast<Shares>(cost) * policy_.window_ms;
    uint64_t former_ms = levels.most.at_ms;

    if (!is_bucket(policy_) || levels.limit == 0) { return; }

    if (cost > 0) {
        levels.least.used = bucket_used(now_ms, levels.limit, Side::least);
        levels.most.used = bucket_used(now_ms, levels.limit, Side::most);
        levels.least.at_ms = std::max(now_ms, levels.least.at_ms);
        levels.most.at_ms = std::max(now_ms, levels.most.at_ms);
    }

    levels.least.used += more;
    levels.most.used += more;
    round_up(&levels, begins_anew(former_ms, levels.most.at_ms));
    levels.least.used -= more;
    levels.most.used -= more;
    round_up(&levels, false);
}

/*
 * What has run off is not given back: all the time up to the latest admission,
 * but for what was used before needed to run off.  Of what was used before, the
 * record does not tell whether that was taken back meanwhile.  Then a refund
 * may give back what has run off.  Else the bucket is never less full than if
 * this had never been admitted.
 */
void Model::take_back(size_t admission) {
    Levels &levels = cases_[0];
    Pour &pour = pours_[admission];
    Shares cost = static_cast<Shares>(pour.cost) * policy_.window_ms;
    Shares ran_off = runs_off(pour.limit, pours_.back().at_ms - pour.at_ms);
    auto given = [&](Shares with) {
        Shares idle = std::max(ran_off - (with - cost), static_cast<Shares>(0));

        return std::max(cost - idle, static_cast<Shares>(0));
    };

    for (size_t i = 0; i < admission; i++) {
        is_loose_ |= pours_[i].is_taken_back;
    }

    pour.is_taken_back = true;

    levels.least.used
        = std::max(levels.least.used - given(pour.after.most.used), static_cast<Shares>(0));
    levels.most.used
        = std::max(levels.most.used - given(pour.after.least.used), static_cast<Shares>(0));

    if (!is_loose_) { levels.least.used = std::max(levels.least.used, replay()); }

    round_up(&levels, true);
}

/* ---- both ---- */

Shares Model::used(uint64_t now_ms, uint32_t limit, Side side) const {
    return is_bucket(policy_) ? std::min(bucket_used(now_ms, limit, side), full(policy_, limit))
                              : sum(now_ms, side);
}

bool Model::fits(uint64_t now_ms, uint32_t limit, uint32_t cost, Side side) const {
    return used(now_ms, limit, side) + static_cast<Shares>(cost) * policy_.window_ms
           <= full(policy_, limit);
}

uint64_t Model::left(uint64_t now_ms, uint32_t limit, Side side) const {
    Shares room = full(policy_, limit) - used(now_ms, limit, side);

    return room > 0 ? static_cast<uint64_t>(room / policy_.window_ms) : 0;
}

uint64_t Model::delay_ms(uint64_t now_ms, uint32_t limit, uint32_t cost, Side side) const {
    Shares own = static_cast<Shares>(cost) * policy_.window_ms;
    Model after = *this;

    after.pour(now_ms, limit, cost);

    Shares ahead = after.used(now_ms, limit, side) - own
                   - static_cast<Shares>(policy_.undelayed) * policy_.window_ms;
    uint64_t own_ms = after.cases_[0].most.at_ms;
    uint64_t behind_ms = std::max(now_ms, own_ms) - now_ms;

    return ahead <= 0 ? 0 : behind_ms + static_cast<uint64_t>(ahead / limit);
}

size_t Model::record(uint64_t now_ms, uint32_t limit, uint32_t cost) {
    own_ms_ = std::max(own_ms_, now_ms);

    if (is_bucket(policy_)) { return pour(now_ms, limit, cost); }

    drop_old();

    if (events_.empty() || events_.back().at_ms < own_ms_) {
        events_.push_back({own_ms_, 0, 0, 0});
    }

    events_.back().cost += cost;

    return own_ms_;
}

void Model::refund(size_t admission, uint32_t cost) {
    if (is_bucket(policy_)) {
        take_back(admission);
        return;
    }

    give_back(admission, cost);
}

/* Of rings no more than the largest limit is noted in a window. */
void Model::give_back(size_t admission, uint32_t cost) {
    uint64_t noted = cost;

    for (const Event &e : events_) {
        noted += e.given_back;
    }

    for (Event &e : events_) {
        if (e.at_ms == admission) {
            e.cost -= cost;
            e.given_back += cost;
            e.kept += noted > kNarrowMax ? cost : 0;
        }
    }
}

void Model::forget() {
    own_ms_ = 0;
    events_.clear();
    cases_ = {Levels{}};
    pours_.clear();
    is_loose_ = false;
}

/* ---- what is told ---- */

const char *reset_fault(const Model &model, uint64_t now_ms, const Verdict &v) {
    uint64_t at_ms = now_ms + v.reset_ms;

    if (v.remaining == capacity(model.policy(), v.limit)) {
        return v.reset_ms == 0 ? nullptr : "a reset of what is full";
    }

    if (v.reset_ms == 0 || model.left(at_ms, v.limit, Side::least) <= v.remaining) {
        return "the reset is too early";
    }

    return model.left(at_ms - 1, v.limit, Side::most) > v.remaining ? "the reset is too late"
                                                                    : nullptr;
}

const char *retry_fault(const Model &model, uint64_t now_ms, bool is_admitted, uint32_t cost,
                        const Verdict &v) {
    uint64_t at_ms = now_ms + v.retry_after_ms;

    if (is_admitted) {
        /* a queue has an excess: what is in it */
        return v.retry_after_ms == 0
                       && (v.excess == 0 || model.policy().algorithm == Algorithm::kLeakyBucket)
                   ? nullptr
                   : "a wait or an excess of what is admitted";
    }

    if (cost > capacity(model.policy(), v.limit)) {
        return v.retry_after_ms == kNever ? nullptr : "a wait for what never fits";
    }

    if (v.retry_after_ms == 0 || v.retry_after_ms == kNever
        || !model.fits(at_ms, v.limit, cost, Side::least)) {
        return "not admitted after its wait";
    }

    return model.fits(at_ms - 1, v.limit, cost, Side::most) ? "admitted before its wait" : nullptr;
}

} // namespace torture
