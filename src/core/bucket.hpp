/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/bucket_debt.hpp"
#include "core/describe.hpp"
#include "core/policy.hpp"

namespace limit_sliding {

/*
 * algorithm=token_bucket and leaky_bucket.  What requests have used runs off
 * at the limit, `limit` in w ms:
 *
 *     used' = max(0, used - limit/w x elapsed)
 *
 * and a request of cost c is admitted when used + c <= capacity.  Tokens in
 * the bucket are capacity - used.  To a leaky bucket, `used` is the queue, with
 * room for one that leaves at once and `burst` that wait: what was in it before
 * the request has to leave first.
 *
 * `used` is kept multiplied by w, so that all of it is exact in integers, but
 * for what BucketState rounds up.
 *
 * The limit may differ from one request to the next: `used` is in requests, so
 * it means the same under either.  A higher limit may have admitted more than
 * this one's bucket holds.  That excess, in whole ms that it takes to run off,
 * is set aside: the bucket is no more than empty.  What then is admitted must
 * not shorten the excess.  So it is recorded as of the time when the bucket was
 * empty, had it been admitted then; what has elapsed since may run off yet.
 *
 * An object is this algorithm at one moment, under one limit.
 */
class Bucket : BucketDebt {
public:
    Bucket(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : BucketDebt(policy, now_ms, limit) {}

    using BucketDebt::owes;
    using BucketState::capacity;

    /* Returns a number that advances by the time in which any bucket that is
     * not used becomes empty. */
    uint64_t epoch() const { return epoch_of(now_ms_); }

    /* Returns how much a state constrains its key; 0: as little as no state.
     * Keys may have limits of their own, so a state is over only when it is so
     * under any limit.  Otherwise the rank is the share of the bucket that is
     * used, as far as the class of its limit tells. */
    uint64_t rank(uint64_t state) const {
        Debt debt;

        if (see_debt(&state, &debt)) { return rank_of_debt(debt); }

        uint64_t elapsed = elapsed_ms(state);

        if (elapsed >= longest_ms()) { return 0; }

        uint64_t pace = pace_of(state);
        uint64_t taken = then(state);
        uint64_t left = taken - std::min(taken, elapsed * pace);

        return 1 + (has_burst() ? left : left / pace);
    }

    /* Returns the same of a key that has a window of its own, of so many binary
     * digits, as a share of a window of the zone's. */
    uint64_t rank_at_all(uint64_t state, unsigned digits) const {
        Bucket own = *this;

        /* the format of a state depends on the digits only */
        own.set_window((uint64_t{1} << digits) - 1);

        uint64_t taken = own.rank(state);

        return taken == 0 ? 0 : 1 + static_cast<uint64_t>(Wide{taken - 1} * window_ms_ >> digits);
    }

    /* Returns what is used, x w.  An excess is left out: no bucket is more than
     * empty. */
    uint64_t used(uint64_t state) const {
        Debt debt;

        if (see_debt(&state, &debt)) {
            /* under a higher limit than that of the charge, there may be room */
            return static_cast<uint64_t>(std::min<Wide>(BucketDebt::used(debt), full()));
        }

        return std::min(level(state), full());
    }

    double share(uint64_t state) const {
        return static_cast<double>(used(state)) / static_cast<double>(full());
    }

    /* Decides on most states: those that have `used` itself, without an excess,
     * and room for it with the request.  False: admit() has to. */
    [[gnu::always_inline]] bool admit_ready(uint64_t state, uint64_t cost, uint64_t *next,
                                            bool *is_admitted) const {
        uint64_t before = state & value_mask();
        uint64_t more = cost * window_ms_;
        uint64_t most = full();

        if (form_of(state) != kExact || before > most || before + more > value_mask() || state == 0
            || cost == 0) {
            return false;
        }

        uint64_t elapsed = between_ms(exact_time_of(state), now_ms_);
        uint64_t ran_off = elapsed * limit_;
        uint64_t wanted = before - std::min(before, ran_off) + more;

        *is_admitted = wanted <= most;

        if (*is_admitted) {
            *next = pack_value((exact_time_of(state) + elapsed) & time_mask(), class_of_limit(),
                               wanted);
        }

        return true;
    }

    bool admit(uint64_t state, uint64_t cost, uint64_t *next) const {
        Debt debt;

        if (cost == 0) {
            *next = state;
            return !owes(state) || !see_debt(&state, &debt) || BucketDebt::used(debt) <= full();
        }

        if (see_debt(&state, &debt)) { return admit_debt(debt, cost, next); }

        uint64_t before = then(state);
        uint64_t excess = excess_of(before, state);
        uint64_t taken = left_of(before - excess, state);

        if (cost > capacity() || taken > full() - cost * window_ms_) { return false; }

        *next = raised(state, excess, taken, taken + cost * window_ms_);
        return true;
    }

    /* Records a rejected cost, as far as the bucket has room for it. */
    uint64_t record_rejected(uint64_t state, uint64_t cost) const {
        Debt debt;
        uint64_t more = std::min(cost, capacity()) * window_ms_;

        if (see_debt(&state, &debt)) {
            uint64_t lost;
            Wide taken = BucketDebt::used(debt);

            return taken >= full() ? state : settled(std::min<Wide>(full(), taken + more), &lost);
        }

        uint64_t before = then(state);
        uint64_t excess = excess_of(before, state);
        uint64_t taken = left_of(before - excess, state);

        return taken >= full() ? state
                               : raised(state, excess, taken, std::min(full(), taken + more));
    }

    /* Takes back a cost; `recorded` is the state as its admission left it.
     * What has run off since is not given back: all of the time up to the
     * latest admission counts, but for the time in which what was used before
     * had to run off.  An excess did not have to: it was set aside.  With one,
     * the latest admission is as of an earlier time, and so all time counts.  A
     * latest admission under a higher limit has let it run off at that. */
    uint64_t refund(uint64_t state, uint64_t recorded, uint64_t cost) const {
        Debt debt;

        if (see_debt(&recorded, &debt)) { recorded = paid(debt); }
        if (see_debt(&state, &debt)) { return less(debt, cost); }

        uint64_t given = cost * window_ms_;
        uint64_t taken = then(state);
        bool has_excess = excess_of(taken, state) != 0;
        uint64_t pace = std::max(limit_, most_of_class(state));
        uint64_t all = then(recorded) - excess_of(then(recorded), recorded);
        uint64_t before = all - std::min(all, given);
        uint64_t ran_off
            = between_ms(time_of(recorded), has_excess ? now_ms_ : time_of(state)) * pace;

        given -= std::min(given, ran_off - std::min(ran_off, before));
        taken -= std::min(taken, given);

        /* without the excess, the next refund needs the time of this one */
        if (has_excess && excess_of(taken, state) == 0) {
            return pack(time_now(state), class_of(state), left_of(taken, state));
        }

        return pack(time_of(state), class_of(state), taken);
    }

    /* Records a cost whatever the limit says.  Returns how many units the key
     * cannot owe: if they are more than the cost, `next` is not to be used.  An
     * excess is owed as well if the bucket does not hold it all. */
    uint64_t charge(uint64_t state, uint64_t cost, uint64_t *next) const {
        Debt debt;
        Wide taken;

        if (see_debt(&state, &debt)) {
            taken = BucketDebt::used(debt);
        } else if (cost <= capacity() && admit(state, cost, next)) {
            return 0;
        } else {
            taken = left_of(then(state), state) + Wide{limit_} * ahead_ms(state);
        }

        uint64_t lost;

        *next = settled(taken + Wide{cost} * window_ms_, &lost);

        return lost;
    }

    /* Takes back a cost. */
    uint64_t give_back(uint64_t state, uint64_t cost) const {
        Debt debt;

        if (see_debt(&state, &debt)) { return less(debt, cost); }

        uint64_t left = left_of(then(state), state);
        uint64_t given = std::min(cost, left / window_ms_ + 1) * window_ms_;

        return pack(time_of(state), class_of(state), then(state) - std::min(given, left));
    }

    /* Returns how many epochs begin within a time from now on. */
    uint64_t epochs_within(uint64_t ms) const { return epoch_of(now_ms_ + ms) - epoch(); }

    /* Returns the ms until a bucket that owes will be just full. */
    uint64_t owed_ms(uint64_t state) const {
        return owes(state) ? whole_ms(read_debt(state).ahead) : 0;
    }

    /* Describes the state as describe_usage() does. */
    [[gnu::always_inline]] void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        if (form_of(state) == kWhole && owes(state)) {
            describe_owing(state, cost, verdict);
            return;
        }

        uint64_t most = full();
        Seen seen = see(state, most);
        Usage usage = {limit_, capacity(), window_ms_, std::min(seen.taken, most),
                       is_queue_ ? window_ms_ : most};

        auto wait = [&](uint64_t room) { return wait_ms(seen, room * window_ms_); };

        describe_usage(usage, cost, wait, verdict);
    }

    /* Returns the verdict's retry_after_ms alone. */
    [[gnu::always_inline]] uint64_t retry_after_ms(uint64_t state, uint64_t cost) const {
        uint64_t most = full();
        uint64_t more = cost * window_ms_;

        if (form_of(state) == kWhole && owes(state)) {
            return more > most ? kNever : wait_owing_ms(state, most - more);
        }

        Seen seen = see(state, most);

        if (more > most) { return kNever; }

        return std::min(seen.taken, most) + more <= most ? 0 : wait_ms(seen, most - more);
    }

    /* Adds what a request that was admitted to a queue has to wait, by the
     * state after it. */
    void describe_queued(uint64_t state, uint64_t cost, Verdict *verdict) const {
        uint64_t ahead = ahead_of(state, cost);

        if (cost > 0) {
            verdict->delay_ms = delay_ms(state, cost);
            verdict->excess = thousandths(ahead + (cost - 1) * window_ms_, window_ms_);
        }
    }

    /* Returns how long such a request is held back: until those ahead of it have
     * left, but for `undelayed` of them.  Parts of a ms are cut off: a request that
     * has to wait for less than one is not delayed at all, as with limit_req. */
    [[gnu::always_inline]] uint64_t delay_ms(uint64_t state, uint64_t cost) const {
        /* most found the queue empty, which takes little to tell */
        return form_of(state) == kExact && (state & value_mask()) <= cost * window_ms_
                   ? 0
                   : queued_ms(state, cost);
    }

    /* Returns when the state is over, of whatever key under whatever limit. */
    uint64_t expires_ms(uint64_t state) const {
        Debt debt;

        if (see_debt(&state, &debt)) { return whole_ms(debt.ahead) + longest_ms(); }

        uint64_t elapsed = elapsed_ms(state);

        return longest_ms() - std::min(elapsed, longest_ms());
    }

private:
    uint64_t epoch_of(uint64_t time_ms) const { return time_ms >> (time_bits_ - 2); }

    [[gnu::noinline]] void describe_owing(uint64_t state, uint64_t cost, Verdict *verdict) const {
        Debt debt;

        if (!see_debt(&state, &debt)) {
            describe(state, cost, verdict);
            return;
        }

        UsageOf<Wide> usage = {limit_, capacity(), window_ms_, BucketDebt::used(debt),
                               is_queue_ ? window_ms_ : full()};

        describe_usage(
            usage, cost, [&](uint64_t room) { return wait_owing_ms(debt, room * window_ms_); },
            verdict);
    }

    [[gnu::noinline]] uint64_t wait_owing_ms(uint64_t state, uint64_t room) const {
        Debt debt;

        if (see_debt(&state, &debt)) { return wait_owing_ms(debt, room); }

        return wait_ms(see(state, full()), room);
    }

    /* Returns the ms until no more than `room`, x w, is used: before or after the
     * bucket is just full. */
    uint64_t wait_owing_ms(const Debt &debt, uint64_t room) const {
        uint64_t ahead_ms = BucketDebt::wait_ms(debt, room);

        if (room >= debt.full) { return ahead_ms; }

        Bucket later = *this;

        later.now_ms_ += ahead_ms;

        return ahead_ms + later.wait_ms(later.see(paid(debt), full()), room);
    }

    /* What is left now of a state. */
    struct Seen {
        uint64_t taken;    /* without the excess */
        uint64_t ahead_ms; /* by which its worker's clock is ahead of ours */
    };

    /* `most` is full().  Most states have what is used itself, and no excess. */
    [[gnu::always_inline]] Seen see(uint64_t state, uint64_t most) const {
        uint64_t before = state & value_mask();

        if (form_of(state) != kExact || before > most) { return see_large(state); }

        uint64_t elapsed = (now_ms_ - exact_time_of(state)) & time_mask();

        if (elapsed >= 3ULL << (time_bits_ - 2)) {
            return {before, state == 0 ? 0 : time_mask() + 1 - elapsed};
        }

        return {before - std::min(before, elapsed * limit_), 0};
    }

    [[gnu::noinline]] Seen see_large(uint64_t state) const {
        return {level(state), ahead_ms(state)};
    }

    /* Returns the ms, rounded up, until no more than `room` is left; 0 if it is
     * so now. */
    uint64_t wait_ms(const Seen &seen, uint64_t room) const {
        return seen.taken <= room ? 0 : seen.ahead_ms + (seen.taken - room + limit_ - 1) / limit_;
    }

    [[gnu::noinline]] uint64_t queued_ms(uint64_t state, uint64_t cost) const {
        uint64_t ahead = ahead_of(state, cost);
        uint64_t free = undelayed_ * window_ms_;

        return cost == 0 || ahead <= free ? 0 : ahead_ms(state) + (ahead - free) / limit_;
    }

    /* Returns what was used beyond a full bucket, in whole ms that it takes to
     * run off.  A wide state may be as of a little before it was filled. */
    uint64_t excess_of(uint64_t taken, uint64_t state) const {
        uint64_t most = full() + (form_of(state) == kWide ? wide_mask() * limit_ : 0);

        return taken <= most ? 0 : (taken - most) / limit_ * limit_;
    }

    /* Returns the state of a bucket of which `wanted` is used now, and `taken` was
     * before; neither includes the excess. */
    [[gnu::always_inline]] uint64_t raised(uint64_t state, uint64_t excess, uint64_t taken,
                                           uint64_t wanted) const {
        return excess == 0 ? pack(time_now(state), class_of_limit(), wanted)
                           : pack_with_excess(state, taken, wanted);
    }

    /*
     * Records an admission to a bucket whose state has an excess.  `taken` is
     * what is used now without it, `wanted` what is used after the admission.
     */
    [[gnu::noinline]] uint64_t pack_with_excess(uint64_t state, uint64_t taken,
                                                uint64_t wanted) const {
        /* no excess is left where the table may have forgotten the state */
        uint64_t rest = elapsed_ms(state) >= longest_ms() ? 0 : left_of(then(state), state) - taken;
        uint64_t excess = (rest + limit_ - 1) / limit_ * limit_;

        if (excess == 0) { return pack(time_now(state), class_of_limit(), wanted); }

        uint64_t since_ms = (full() - wanted + limit_ - 1) / limit_;

        return pack((time_now(state) - since_ms) & time_mask(),
                    std::max(class_of(state), class_of_limit()),
                    wanted + since_ms * limit_ + excess);
    }

    /* Returns what is left now without the excess.  That is set aside in whole
     * ms, so the rest may be a little more than a full bucket. */
    uint64_t level(uint64_t state) const {
        uint64_t before = then(state);

        return left_of(before - excess_of(before, state), state);
    }

    /* Returns what is left now of what was used at the state's time. */
    uint64_t left_of(uint64_t taken, uint64_t state) const {
        uint64_t ran_off = elapsed_ms(state) * limit_;

        return ran_off > taken ? 0 : taken - ran_off;
    }

    /* Returns the ms since the state's time; 0 if a worker made it whose clock
     * is ahead of ours. */
    uint64_t elapsed_ms(uint64_t state) const { return between_ms(time_of(state), now_ms_); }

    /* Returns by how many ms that clock is ahead. */
    uint64_t ahead_ms(uint64_t state) const {
        return state == 0 || elapsed_ms(state) != 0 ? 0 : (time_of(state) - now_ms_) & time_mask();
    }

    /* Returns the time of a new state: that of the old one if our clock is
     * behind. */
    uint64_t time_now(uint64_t state) const {
        return state != 0 && elapsed_ms(state) == 0 ? time_of(state) : now_ms_ & time_mask();
    }

    /* Returns what was in the queue before a request of this cost, which has
     * joined it. */
    uint64_t ahead_of(uint64_t state, uint64_t cost) const {
        uint64_t taken = used(state);

        return taken - std::min(taken, cost * window_ms_);
    }
};

} // namespace limit_sliding
