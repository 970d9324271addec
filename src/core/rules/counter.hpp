/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <numeric>

#include "core/policy/describe_usage.hpp"
#include "core/policy/policy.hpp"
#include "core/rules/counter_format.hpp"
#include "core/table/slot.hpp"

namespace limit_sliding {

/* The counts of all parts of a counter, decoded from any kind. */
struct CounterCounts : CounterState {
    unsigned kind;
    uint64_t newest;
    uint64_t count[kCounterPartsMax + 1];

    /* Leaves the counts uninitialized. */
    CounterCounts(unsigned k, uint64_t p) : kind(k), newest(p) {}

    CounterCounts(unsigned k, uint64_t p, uint64_t counts) : kind(k), newest(p) {
        format(kind).decode(counts, count);
    }

    unsigned n() const { return format(kind).parts(); }
    uint64_t encode() const { return format(kind).encode(count); }
    uint64_t total() const { return std::accumulate(count, count + n() + 1, uint64_t{0}); }

    /* Limits each part to `most` requests. */
    void cap(uint64_t most) {
        for (unsigned i = 0; i <= n(); i++) {
            count[i] = std::min(count[i], most);
        }
    }

    /* Removes the oldest requests until at most `most` are left. */
    void keep_newest(uint64_t most) {
        uint64_t all = total();
        for (unsigned i = 0; all > most; i++) {
            all -= take(i, all - most);
        }
    }

    /* Removes up to `cost` requests from a part.  Returns their number. */
    uint64_t take(uint64_t i, uint64_t cost) {
        assert(i <= n());
        uint64_t taken = std::min(count[i], cost);
        count[i] -= taken;
        return taken;
    }

    /* Converts to the first kind, from `first` on, that has room for the counts.  If this kind has
     * more parts, each part must end where one of the new parts ends.  Otherwise requests would
     * move to a later part with each conversion between alternating limits. */
    void fit(unsigned first) {
        CounterCounts own = *this;

        for (unsigned next = first;; next++) {
            *this = own;
            convert_to(next);

            bool moves_back = n() <= own.n() || n() % own.n() == 0;

            if ((moves_back && format(kind).fits(count)) || next == kCounterKindsLength - 1) {
                return;
            }
        }
    }

    void convert_to(unsigned other) {
        uint64_t latest = convert(newest, kind, other);
        unsigned length = format(other).parts();
        uint64_t moved[kCounterPartsMax + 1] = {};

        for (unsigned i = 0; i <= n(); i++) {
            uint64_t age = latest - convert(newest - n() + i, kind, other);

            if (age <= length) { moved[length - age] += count[i]; }
        }

        kind = other;
        newest = latest;
        std::copy_n(moved, length + 1, count);
    }

    /* Returns the number of the part of another kind that contains the end of a part. */
    static uint64_t convert(uint64_t part, unsigned from, unsigned to) {
        uint64_t n = format(from).parts();
        return ((part + 1) * format(to).parts() + n - 1) / n - 1;
    }
};

/* The counts of a key at one moment, in the format of some kind. */
struct CounterView {
    uint64_t part;    /* number of the newest part, counted from the zone's time 0 */
    uint64_t counts;  /* encoded counts of the newest part and the n before */
    uint64_t elapsed; /* elapsed ms of the newest part, x n, 0 .. w - 1 */
};

/* The rule of the counter under one limit, explained below.  All functions are inline for callers
 * with a constant format. */
struct CounterRule {
    uint64_t window_ms;
    uint64_t limit;
    bool strict;

    /* Returns the limit in request-milliseconds. */
    uint64_t full() const { return limit * window_ms; }

    [[gnu::always_inline]] uint64_t used(const CounterFormat &format, const CounterView &v) const {
        uint64_t all = format.total(v.counts) * window_ms;
        if (strict || format.is_string()) { return all; }
        uint64_t oldest = format.oldest(v.counts);
        return oldest == 0 ? all : all - std::min(oldest * v.elapsed, fading_max(format));
    }

    /* Returns the ms until used <= room; the counts must add up to more.  The wait ends while the
     * part from find() is the oldest: when it has faded enough, or when it leaves the window.  The
     * caller has to round counts up that will be rounded meanwhile. */
    [[gnu::always_inline]] uint64_t wait_ms(const CounterFormat &format, const CounterView &v,
                                            uint64_t room, uint64_t now_ms) const {
        assert(format.total(v.counts) > room);

        uint64_t n = format.parts();
        uint64_t count, newer;
        uint64_t older = format.find(v.counts, room, &count, &newer);
        uint64_t elapsed = window_ms;

        if (!strict && !format.is_string()) {
            uint64_t all = newer + count;
            uint64_t surplus = (all - room) * window_ms;

            if (surplus <= fading_max(format)) { elapsed = (surplus + count - 1) / count; }
        }

        return ((v.part + older) * window_ms + elapsed + n - 1) / n - now_ms;
    }

private:
    /* Returns the most request-milliseconds by which the oldest part may fade. */
    uint64_t fading_max(const CounterFormat &format) const {
        return format.parts() == 1 ? UINT64_MAX : limit / format.parts() * window_ms;
    }
};

/*
 * algorithm=counter, the sliding window counter, with precision=auto or 1.  A window of w ms is
 * cut into n parts; the kind of the limit defines n (counter_kinds.hpp), and precision=1 means one
 * part.  The state of a key has its requests in the present part and in the n parts before.  The
 * sliding window covers the oldest part only partially.  With the elapsed share e of the present
 * part
 *
 *     used = all parts - min(oldest x e, limit/n rounded down)
 *
 * and a request of cost c is admitted when used + c <= limit.  So any interval of w has at most
 * limit + limit/n requests.  One part makes the classic estimate, previous x (1 - e) + current,
 * without the bound limit/n.  With `strict` the oldest part counts in full, and no interval of w
 * exceeds the limit.  Limits below n count the oldest part in full as well, because limit/n is 0.
 *
 * `used` is multiplied by w, in request-milliseconds; the largest term is 2^31 requests x 2^31.3
 * ms.  The counts are exact up to 4,194,303 requests in a window.  Larger counts are rounded up in
 * the next window, by up to 2^-12.  So a state uses the first kind of one part that holds its
 * counts, and a passed window the first one that holds its own count.
 *
 * A request may find a state of another kind, from another limit.  The state is converted to the
 * kind of the present limit, or to the next kind that has room.  The requests of a part move to
 * the latest part in which they can have been.  So no request expires earlier than before, and the
 * conversion depends only on the state and not on the time.
 *
 * State: the kind + 1 in 4 bits, the number of the newest part modulo 2^13, a bit for
 * eviction_rank(), the counts in 44 bits (counter_format.hpp).  The zone's epochs (slot.hpp)
 * expire a state before its number wraps.
 *
 * An object is this algorithm at one moment, under one limit.
 */
class Counter : CounterState {
public:
    Counter(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : rule_{policy.window_ms, limit, policy.strict}, now_ms_(now_ms),
          kind_(std::min(counter_kind_of(policy, limit), kCounterWhole)) {
        uint64_t units = now_ms * format(kind_).parts();
        part_ = units / rule_.window_ms;
        elapsed_ = units - part_ * rule_.window_ms;
    }

    /* Returns the epoch.  A state that is two epochs old has not wrapped. */
    uint64_t epoch() const { return epoch_of(now_ms_, rule_.window_ms); }

    uint64_t capacity() const { return rule_.limit; }

    /* Returns the rank of a state of any key, under an unknown limit. */
    uint64_t rank(uint64_t state) const {
        state = valid(state);

        View v = stored_view(state);

        uint64_t all = format_of(state).total(counts_of(state)) * rule_.window_ms;
        uint64_t left
            = CounterRule{rule_.window_ms, UINT64_MAX, rule_.strict}.used(format(v.kind), v);

        /* a state that has mostly decayed is no longer near its limit */
        return eviction_rank(left, is_near(state) && left >= all - left);
    }

    /* Returns the rank for a key with its own window, as if all its requests were in the zone's
     * present window. */
    uint64_t rank_at_all(uint64_t state, unsigned) const {
        state = valid(state);
        return eviction_rank(format_of(state).total(counts_of(state)) * rule_.window_ms,
                             is_near(state));
    }

    double share(uint64_t state) const {
        View v = view(state);
        return static_cast<double>(used(v)) / static_cast<double>(rule_.full());
    }

    bool admit(uint64_t state, uint64_t cost, uint64_t *next) const {
        assert(rule_.limit >= 1 && rule_.limit <= kLimitMax && cost <= kCostMax);
        View v = view(state);
        uint64_t wanted = used(v) + cost * rule_.window_ms;
        if (cost > rule_.limit || wanted > rule_.full()) { return false; }
        *next = cost == 0 ? state : added(v, cost, is_near_limit(wanted, rule_.full()));
        return true;
    }

    /* Refunds a cost.  `recorded` is the state after its admission, less than 128 windows ago. */
    uint64_t refund(uint64_t state, uint64_t recorded, uint64_t cost) const {
        state = valid(state);
        if (state == 0) { return 0; }

        return amend(state, [&](CounterCounts &parts) {
            if (kind_of(recorded) >= kCounterKindsLength) { return; }
            uint64_t age
                = parts.newest
                  - CounterCounts::convert(newest_of(recorded), kind_of(recorded), parts.kind);
            if (age <= parts.n()) { parts.take(parts.n() - age, cost); }
        });
    }

    /* Refunds a cost if it was admitted in the newest part, as most are.  Else returns false. */
    static bool refund_soon(uint64_t state, uint64_t recorded, uint64_t cost, uint64_t *next) {
        uint64_t counts = counts_of(state);
        if (((state ^ recorded) >> kHeadShift) != 0 || kind_of(state) >= kCounterKindsLength
            || !format_of(state).take(cost, &counts)) {
            return false;
        }
        *next = state - counts_of(state) + counts;
        return true;
    }

    /* Records a rejected cost in the newest part, up to the limit.  A string of bits has room for
     * the limit in all parts together, so the oldest requests are removed from it. */
    uint64_t record_rejected(uint64_t state, uint64_t cost) const {
        View v = view(state);

        CounterCounts parts(v.kind, v.part, v.counts);
        uint64_t before = parts.total();
        uint64_t &newest = parts.count[parts.n()];

        if (newest >= rule_.limit) { return state; }

        newest = std::min(rule_.limit, newest + cost);
        if (format(v.kind).is_string()) { parts.keep_newest(std::max(rule_.limit, before)); }

        if (v.kind >= kCounterWhole) { parts.fit(kCounterWhole); }

        return pack(parts.kind, v.part, true, parts.encode());
    }

    /* Returns the state with the counts of n parts of a window and of the part before them, the
     * oldest first; 0 if no kind for the limit has n parts. */
    uint64_t state_of(uint64_t n, uint64_t newest, const uint64_t *count) const {
        for (unsigned kind = kind_; kind < kCounterKindsLength; kind++) {
            if (format(kind).parts() != n) { continue; }

            CounterCounts parts(kind, newest);

            std::copy_n(count, n + 1, parts.count);
            return packed(parts);
        }

        return 0;
    }

    /* Adds a cost in the parts in which another state of this limit has more, the newest first, and
     * what is left in the newest part.  The sum may exceed the limit. */
    uint64_t raised(uint64_t state, uint64_t other, uint64_t cost) const {
        const View own = view(state), more = view(other);
        CounterCounts parts(own.kind, own.part, own.counts);
        const CounterCounts others(more.kind, more.part, more.counts);
        const bool are_alike = parts.n() == others.n() && parts.newest == others.newest;
        for (unsigned i = parts.n() + 1; are_alike && i > 0; i--) {
            uint64_t &count = parts.count[i - 1];
            const uint64_t added
                = std::min(cost, others.count[i - 1] - std::min(count, others.count[i - 1]));
            count += added;
            cost -= added;
        }

        parts.count[parts.n()] += cost;
        return packed(parts);
    }

    /* Refunds a cost from the requests of `at_ms` and older ones, and then from the others, the
     * newest of each first. */
    uint64_t give_back(uint64_t state, uint64_t cost, uint64_t at_ms = UINT64_MAX) const {
        state = valid(state);
        if (state == 0) { return 0; }
        return amend(state, [&](CounterCounts &parts) {
            const uint64_t at = std::min(at_ms, now_ms_) * parts.n() / rule_.window_ms;
            const uint64_t age = parts.newest - std::min(parts.newest, at);
            const auto newer = static_cast<unsigned>(std::min<uint64_t>(age, parts.n() + 1));
            for (unsigned begin : {parts.n() + 1 - newer, parts.n() + 1}) {
                for (unsigned i = begin; i > 0; i--) {
                    cost -= parts.take(i - 1, cost);
                }
            }
        });
    }

    void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        View v = view(state);
        describe_usage(
            {rule_.limit, rule_.limit, rule_.window_ms, used(v), rule_.full()}, cost,
            [&](uint64_t room) { return wait_ms(v, room); }, verdict);
    }

    uint64_t retry_after_ms(uint64_t state, uint64_t cost) const {
        return cost > rule_.limit ? kNever : wait_ms(view(state), rule_.limit - cost);
    }

    uint64_t expires_ms(uint64_t state) const { return wait_ms(stored_view(valid(state)), 0); }

private:
    struct View : CounterView {
        unsigned kind;
        uint64_t ends_ms = UINT64_MAX; /* ms until the original state of converted counts expires */
    };

    static const CounterFormat &format_of(uint64_t state) { return format(kind_of(state)); }

    /* Returns the number of a state's newest part, counted from time 0. */
    uint64_t newest_of(uint64_t state) const {
        uint64_t present = now_ms_ * format_of(state).parts() / rule_.window_ms;
        uint64_t passed = age(state, present);
        return passed <= kOldest ? present - passed : present + (kPartMask + 1 - passed);
    }

    View view(uint64_t state) const {
        if (state != 0 && kind_of(state) == kind_ && age(state, part_) <= kOldest
            && format(kind_).is_valid(counts_of(state))) {
            uint64_t counts = format(kind_).age(counts_of(state), age(state, part_));
            return {{part_, counts, elapsed_}, kind_};
        }
        return other_view(state);
    }

    /* Views a state of another kind, or one that is ahead of this worker's clock. */
    [[gnu::noinline]] View other_view(uint64_t state) const {
        state = valid(state);

        if (state != 0 && kind_of(state) == kind_) {
            return at_present(kind_, newest_of(state), counts_of(state));
        }

        View own = stored_view(state);

        if (format(own.kind).total(own.counts) == 0) {
            return {{part_, format(kind_).none(), elapsed_}, kind_};
        }

        CounterCounts parts(kind_of(state), newest_of(state), counts_of(state));
        parts.fit(kind_);
        View v = at_present(parts.kind, parts.newest, parts.encode());
        v.ends_ms = wait_ms(own, 0);
        return v;
    }

    /* Adds a cost to the newest part and makes the state.  The sum does not exceed the limit. */
    uint64_t added(const View &v, uint64_t cost, bool is_near) const {
        if (v.kind <= kCounterWhole && rule_.limit <= kCounterKinds[kCounterWhole].limit_max) {
            return pack(v.kind, v.part, is_near, format(v.kind).add(v.counts, cost));
        }
        CounterCounts parts(v.kind, v.part, v.counts);
        parts.count[1] += cost;
        parts.fit(kCounterWhole);
        return pack(parts.kind, v.part, is_near, parts.encode());
    }

    /* Views a state in its own kind. */
    View stored_view(uint64_t state) const {
        return at_present(kind_of(state), newest_of(state), counts_of(state));
    }

    View at_present(unsigned kind, uint64_t newest, uint64_t counts) const {
        uint64_t units = now_ms_ * format(kind).parts();
        uint64_t part = units / rule_.window_ms;
        if (newest > part) { return {{newest, counts, 0}, kind}; }
        return aged(kind, newest, counts, part - newest, units - part * rule_.window_ms);
    }

    /* Views counts after `begun` further parts.  A count of a whole window is then rounded by the
     * first kind with room for it, whatever the window before had. */
    static View aged(unsigned kind, uint64_t newest, uint64_t counts, uint64_t begun,
                     uint64_t elapsed) {
        if (kind > kCounterWhole && begun > 0) {
            counts = format(kind).newest(counts);
            kind = counter_kind_from(kCounterWhole, counts);
        }
        return {{newest + begun, format(kind).age(counts, begun), elapsed}, kind};
    }

    uint64_t used(const View &v) const { return rule_.used(format(v.kind), v); }

    /* Returns the ms until used <= room. */
    uint64_t wait_ms(const View &v, uint64_t room) const {
        if (used(v) <= room * rule_.window_ms) { return 0; }

        uint64_t wait_ms = rule_.wait_ms(format(v.kind), v, room, now_ms_);

        if (v.kind > kCounterWhole && now_ms_ + wait_ms >= (v.part + 1) * rule_.window_ms) {
            /* the newest count is rounded up by then */
            View next = aged(v.kind, v.part, v.counts, 1, 0);
            if (used(next) > room * rule_.window_ms) {
                wait_ms = rule_.wait_ms(format(next.kind), next, room, now_ms_);
            }
        }

        return std::min(wait_ms, v.ends_ms);
    }

    /* Makes a state of any counts, in the first kind from their own on that has room. */
    uint64_t packed(CounterCounts parts) const {
        parts.cap(kLimitMax);

        const bool is_near = is_near_limit(parts.total(), rule_.limit);

        parts.fit(parts.kind);
        /* parts may have merged */
        parts.cap(kLimitMax);

        return pack(parts.kind, parts.newest, is_near, parts.encode());
    }

    /* Changes the parts of a valid state. */
    template <class Change>
    uint64_t amend(uint64_t state, const Change &change) const {
        CounterCounts parts(kind_of(state), newest_of(state), counts_of(state));
        change(parts);
        return pack(parts.kind, parts.newest, is_near(state), parts.encode());
    }

    CounterRule rule_;
    uint64_t now_ms_;
    unsigned kind_;
    uint64_t part_;    /* number of the present part, of this kind */
    uint64_t elapsed_; /* elapsed ms of the present part, x n, 0 .. w - 1 */
};

/* The counter for limits of one kind, compiled for this kind.  It decides states of the same kind,
 * as nearly all states are; Counter decides the others. */
template <unsigned kKind>
class FastCounter : CounterState {
public:
    FastCounter(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : rule_{policy.window_ms, limit, policy.strict}, now_ms_(now_ms) {}

    uint64_t epoch() const { return epoch_of(now_ms_, rule_.window_ms); }

    /* Returns false if Counter has to decide. */
    [[gnu::always_inline]] bool admit_ready(uint64_t state, uint64_t cost, uint64_t *next,
                                            bool *is_admitted) {
        CounterView &v = seen_;
        if (!see(state, &v)) { return false; }

        uint64_t wanted = rule_.used(kFormat, v) + cost * rule_.window_ms;
        uint64_t full = rule_.full();

        *is_admitted = cost <= rule_.limit && wanted <= full;

        if (*is_admitted && cost != 0) {
            *next = pack(kKind, v.part, is_near_limit(wanted, full), kFormat.add(v.counts, cost));
        }

        return true;
    }

    /* Returns retry_after_ms of the verdict after admit_ready() has rejected. */
    [[gnu::always_inline]] uint64_t retry_after_ms(uint64_t, uint64_t cost) const {
        return cost > rule_.limit ? kNever : wait_ms(seen_, rule_.limit - cost);
    }

    /* Describes a state like Counter::describe().  Returns false if Counter has to do so. */
    bool describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        CounterView v;
        if (!see(state, &v)) { return false; }
        describe_usage(
            {rule_.limit, rule_.limit, rule_.window_ms, rule_.used(kFormat, v), rule_.full()}, cost,
            [&](uint64_t room) { return wait_ms(v, room); }, verdict);
        return true;
    }

private:
    static constexpr CounterFormat kFormat = kCounterFormats[kKind];

    [[gnu::always_inline]] bool see(uint64_t state, CounterView *v) const {
        uint64_t units = now_ms_ * kFormat.parts();
        uint64_t part = units / rule_.window_ms;
        *v = {part, counts_of(state), units - part * rule_.window_ms};
        if (state >> kHeadShift == head(kKind, part)) { return true; }
        uint64_t passed = age(state, part);
        if (state >> (kHeadShift + kPartBits) != kKind + 1 || passed > kOldest) { return false; }
        v->counts = kFormat.age(v->counts, passed);
        return true;
    }

    [[gnu::always_inline]] uint64_t wait_ms(const CounterView &v, uint64_t room) const {
        return rule_.wait_ms(kFormat, v, room, now_ms_);
    }

    CounterRule rule_;
    uint64_t now_ms_;
    CounterView seen_; /* set by admit_ready() */
};

} // namespace limit_sliding
