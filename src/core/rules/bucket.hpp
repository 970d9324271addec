/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/policy/describe_usage.hpp"
#include "core/policy/policy.hpp"
#include "core/rules/bucket_state.hpp"

namespace limit_sliding {

/*
 * algorithm=token_bucket and leaky_bucket.  Used units drain at the rate of the limit, `limit` in
 * w ms:
 *
 *     used' = max(0, used - limit/w x elapsed)
 *
 * A request of cost c is admitted when used + c <= capacity.  A token bucket holds capacity - used
 * tokens.  In a leaky bucket `used` is the queue: one request leaves at once, up to `burst`
 * requests wait, and a request leaves after all requests before it.
 *
 * `used` is multiplied by w, which makes it an integer.  Only BucketState rounds it up.
 *
 * Requests for one key may have different limits, but `used` is in requests.  So a higher limit
 * may have admitted more than the bucket of the present limit holds.  The surplus, rounded down to
 * the units of whole ms, is the excess.  The present limit sets the excess aside, and its bucket
 * is full at the time of the state.  An admission must keep the excess for higher limits.  So the
 * new state gets the earlier time at which a full bucket would have begun to drain to the used
 * units of now.
 *
 * An object is this algorithm at one moment, under one limit.
 */
class Bucket : BucketState {
public:
    Bucket(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : BucketState(policy, limit), now_ms_(now_ms) {}

    using BucketState::capacity;

    /* Returns the epoch, which lasts at least until any unused bucket is empty. */
    uint64_t epoch() const { return epoch_of(now_ms_); }

    /* Returns the rank of a state of any key; 0: no state.  The key may have an override, so a
     * state has expired only if it has under any limit.  Otherwise the rank is the used share of
     * the bucket, as estimated from the class of the key's limit. */
    uint64_t rank(uint64_t state) const {
        uint64_t elapsed = elapsed_ms(state);
        if (elapsed >= longest_ms()) { return 0; }
        uint64_t pace = pace_of(state);
        uint64_t taken = then(state);
        uint64_t left = taken - std::min(taken, elapsed * pace);
        return 1 + (has_burst() ? left : left / pace);
    }

    /* Returns the rank for a key that has a window of `digits` binary digits, as a share of the
     * zone's window. */
    uint64_t rank_at_all(uint64_t state, unsigned digits) const {
        Bucket own = *this;

        /* the format depends only on the digits */
        own.set_window((uint64_t{1} << digits) - 1);

        uint64_t taken = own.rank(state);

        return taken == 0 ? 0 : 1 + static_cast<uint64_t>(Wide{taken - 1} * window_ms_ >> digits);
    }

    /* Returns the used units x w, without an excess. */
    uint64_t used(uint64_t state) const { return std::min(level(state), full()); }

    double share(uint64_t state) const {
        return static_cast<double>(used(state)) / static_cast<double>(full());
    }

    /* Decides a state in the form kExact without an excess, as most states are.  Returns false if
     * admit() has to decide. */
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
        if (cost == 0) {
            *next = state;
            return true;
        }

        assert(limit_ >= 1 && limit_ <= kLimitMax && cost <= kCostMax);

        uint64_t before = then(state);
        uint64_t excess = excess_of(before, state);
        uint64_t taken = left_of(before - excess, state);

        if (cost > capacity() || taken > full() - cost * window_ms_) { return false; }

        *next = raised(state, excess, taken, taken + cost * window_ms_);
        return true;
    }

    /* Records a rejected cost as far as the bucket has room. */
    uint64_t record_rejected(uint64_t state, uint64_t cost) const {
        uint64_t more = std::min(cost, capacity()) * window_ms_;
        uint64_t before = then(state);
        uint64_t excess = excess_of(before, state);
        uint64_t taken = left_of(before - excess, state);

        return taken >= full() ? state
                               : raised(state, excess, taken, std::min(full(), taken + more));
    }

    /* Refunds the units of a cost that have not drained.  `recorded` is the state after the
     * admission of the cost.  Units used before this admission drain first.  The drained units are
     * counted until the time of `state`, at the present limit or the largest one that `state` may
     * have had, if that is higher.  The time of a state with an excess may precede its latest
     * admission, so the units are then counted until now. */
    uint64_t refund(uint64_t state, uint64_t recorded, uint64_t cost) const {
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

        /* without an excess the state must have the present time, for the next refund */
        if (has_excess && excess_of(taken, state) == 0) {
            return pack(time_now(state), class_of(state), left_of(taken, state));
        }

        return pack(time_of(state), class_of(state), taken);
    }

    /* Refunds a cost if its admission is unknown. */
    uint64_t give_back(uint64_t state, uint64_t cost) const {
        uint64_t left = left_of(then(state), state);
        uint64_t given = std::min(cost, left / window_ms_ + 1) * window_ms_;
        return pack(time_of(state), class_of(state), then(state) - std::min(given, left));
    }

    /* Describes the state as describe_usage() does. */
    [[gnu::always_inline]] void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        uint64_t most = full();
        Seen seen = see(state, most);
        Usage usage = {limit_, capacity(), window_ms_, std::min(seen.taken, most),
                       is_queue_ ? window_ms_ : most};

        auto wait = [&](uint64_t room) { return wait_ms(seen, room * window_ms_); };

        describe_usage(usage, cost, wait, verdict);
    }

    [[gnu::always_inline]] uint64_t retry_after_ms(uint64_t state, uint64_t cost) const {
        uint64_t most = full();
        uint64_t more = cost * window_ms_;
        Seen seen = see(state, most);
        if (more > most) { return kNever; }
        return std::min(seen.taken, most) + more <= most ? 0 : wait_ms(seen, most - more);
    }

    /* Sets the delay and the excess of a queued request; `state` includes the request. */
    void describe_queued(uint64_t state, uint64_t cost, Verdict *verdict) const {
        uint64_t ahead = ahead_of(state, cost);
        if (cost > 0) {
            verdict->delay_ms = delay_ms(state, cost);
            verdict->excess = thousandths(ahead + (cost - 1) * window_ms_, window_ms_);
        }
    }

    /* Returns the ms until only `undelayed` of the requests before an admitted one are left in the
     * queue, rounded down as limit_req does. */
    [[gnu::always_inline]] uint64_t delay_ms(uint64_t state, uint64_t cost) const {
        /* most requests find an empty queue */
        return form_of(state) == kExact && (state & value_mask()) <= cost * window_ms_
                   ? 0
                   : queued_ms(state, cost);
    }

    /* Returns the ms until the state of any key has expired under any limit. */
    uint64_t expires_ms(uint64_t state) const {
        uint64_t elapsed = elapsed_ms(state);
        return longest_ms() - std::min(elapsed, longest_ms());
    }

private:
    uint64_t epoch_of(uint64_t time_ms) const { return time_ms >> (time_bits_ - 2); }

    /* The used units of a state at this moment. */
    struct Seen {
        uint64_t taken;    /* used units x w, without the excess */
        uint64_t ahead_ms; /* ms by which the state's clock is ahead of this worker's */
    };

    /* `most` is full().  Most states have the form kExact and no excess. */
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

    /* Returns the ms until at most `room` units x w are used, rounded up; 0 if they are now. */
    uint64_t wait_ms(const Seen &seen, uint64_t room) const {
        return seen.taken <= room ? 0 : seen.ahead_ms + (seen.taken - room + limit_ - 1) / limit_;
    }

    [[gnu::noinline]] uint64_t queued_ms(uint64_t state, uint64_t cost) const {
        uint64_t ahead = ahead_of(state, cost);
        uint64_t free = undelayed_ * window_ms_;
        return cost == 0 || ahead <= free ? 0 : ahead_ms(state) + (ahead - free) / limit_;
    }

    /* Returns the units beyond a full bucket, rounded down to the units of whole ms.  A wide state
     * may hold more than a full bucket, because its time may precede the admission. */
    uint64_t excess_of(uint64_t taken, uint64_t state) const {
        uint64_t most = full() + (form_of(state) == kWide ? wide_mask() * limit_ : 0);
        return taken <= most ? 0 : (taken - most) / limit_ * limit_;
    }

    /* Returns the state after an admission raises the used units from `taken` to `wanted`, both
     * without the excess. */
    [[gnu::always_inline]] uint64_t raised(uint64_t state, uint64_t excess, uint64_t taken,
                                           uint64_t wanted) const {
        return excess == 0 ? pack(time_now(state), class_of_limit(), wanted)
                           : pack_with_excess(state, taken, wanted);
    }

    /* Records an admission for a state with an excess.  `taken` and `wanted` are the used units
     * before and after, without the excess. */
    [[gnu::noinline]] uint64_t pack_with_excess(uint64_t state, uint64_t taken,
                                                uint64_t wanted) const {
        /* the table may have evicted states of this age, so the excess ends */
        uint64_t rest = elapsed_ms(state) >= longest_ms() ? 0 : left_of(then(state), state) - taken;
        uint64_t excess = (rest + limit_ - 1) / limit_ * limit_;

        if (excess == 0) { return pack(time_now(state), class_of_limit(), wanted); }

        assert(wanted <= full());

        uint64_t since_ms = (full() - wanted + limit_ - 1) / limit_;

        return pack((time_now(state) - since_ms) & time_mask(),
                    std::max(class_of(state), class_of_limit()),
                    wanted + since_ms * limit_ + excess);
    }

    /* Returns the units that are used now, without the excess.  Rounding may raise them a little
     * above a full bucket. */
    uint64_t level(uint64_t state) const {
        uint64_t before = then(state);
        return left_of(before - excess_of(before, state), state);
    }

    /* Returns how many of the units `taken` at the state's time have not drained yet. */
    uint64_t left_of(uint64_t taken, uint64_t state) const {
        uint64_t ran_off = elapsed_ms(state) * limit_;
        return ran_off > taken ? 0 : taken - ran_off;
    }

    /* Returns the ms since the state's time; 0 if the state is ahead of this worker's clock. */
    uint64_t elapsed_ms(uint64_t state) const { return between_ms(time_of(state), now_ms_); }

    /* Returns the ms by which the state's time is ahead of this worker's clock. */
    uint64_t ahead_ms(uint64_t state) const {
        return state == 0 || elapsed_ms(state) != 0 ? 0 : (time_of(state) - now_ms_) & time_mask();
    }

    /* Returns the time for a new state: now, or the present state's time if that is later. */
    uint64_t time_now(uint64_t state) const {
        return state != 0 && elapsed_ms(state) == 0 ? time_of(state) : now_ms_ & time_mask();
    }

    /* Returns the units x w in the queue ahead of its last request, which has this cost. */
    uint64_t ahead_of(uint64_t state, uint64_t cost) const {
        uint64_t taken = used(state);
        return taken - std::min(taken, cost * window_ms_);
    }

    uint64_t now_ms_;
};

} // namespace limit_sliding
