/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/counter_counts.hpp"
#include "core/counter_debt.hpp"
#include "core/counter_rule.hpp"
#include "core/describe.hpp"
#include "core/policy.hpp"
#include "core/rank.hpp"

namespace limit_sliding {

/*
 * algorithm=counter, the sliding window counter, with precision=auto or 1.  A
 * window of w ms is cut into n parts, as many as the kind of the limit says
 * (counter_kinds.hpp); precision=1 has one.  A key's state is its requests in
 * the present part and in the n before it, of which the window that ends now
 * covers the oldest only in part.  With the share e of the present part elapsed
 *
 *     used = all parts - min(oldest x e, limit/n rounded down)
 *
 * and a request of cost c is admitted when used + c <= limit.  So in any
 * interval of w at most limit + limit/n are admitted.  With one part this is
 * the classic estimate, previous x (1 - e) + current.  With `strict` the oldest
 * part counts in full, and no interval of w has more than the limit.  Limits
 * below n need no weight to be told to do so.
 *
 * `used` is kept multiplied by w, in request-milliseconds, where the largest
 * term is 2^31 requests x 2^31.3 ms.  All of it is exact, but for limits above
 * 4,194,303: what they have used in the window before counts up to 2^-12 more.
 *
 * A state of another kind, made under another limit, is converted when it is
 * read, to the kind of the present limit or the next that has room for its
 * counts.  The requests of a part then are taken for as late as they can have
 * been.  So none is lost before the state would have expired as it was, and the
 * conversion depends on the state alone, not on the time.
 *
 * State: the number of its kind + 1 in 4 bits, the number of its newest part
 * modulo 2^13, a bit for rank.hpp, counts in 44 bits (counter_format.hpp).  The
 * number of the part wraps; the zone's epochs (table.hpp) keep states from
 * growing old enough for that to matter.
 *
 * An object is this algorithm at one moment, under one limit.
 */
class Counter : CounterState {
public:
    Counter(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : rule_{policy.window_ms, limit, policy.strict}, now_ms_(now_ms),
          kind_(counter_kind_of(policy, limit)) {
        uint64_t units = now_ms * format(kind_).parts();

        part_ = units / rule_.window_ms;
        elapsed_ = units - part_ * rule_.window_ms;
    }

    /* Returns the epoch; a state two epochs old has not wrapped. */
    uint64_t epoch() const { return epoch_of(now_ms_, rule_.window_ms); }

    uint64_t capacity() const { return rule_.limit; }

    /* Returns the same for another key, whose limit is not known. */
    uint64_t rank(uint64_t state) const {
        state = valid(state);

        View v = own_view(state);

        if (owes(state)) { return rank_of_debt(v); }

        uint64_t all = format_of(state).total(counts_of(state)) * rule_.window_ms;
        uint64_t left
            = CounterRule{rule_.window_ms, UINT64_MAX, rule_.strict}.used(format(v.kind), v);

        /* a state is no longer near when most of it has decayed */
        return rank_of(left, is_near(state) && left >= all - left);
    }

    /* Returns the same of a key that has a window of its own, as if all that it has
     * used were of the present window of the zone's. */
    uint64_t rank_at_all(uint64_t state, unsigned) const {
        if (owes(state)) { return rank_of(CounterDebt::total(state) * rule_.window_ms, true); }

        state = valid(state);

        return rank_of(format_of(state).total(counts_of(state)) * rule_.window_ms, is_near(state));
    }

    double share(uint64_t state) const {
        View v = view(state);

        if (v.owes) { return static_cast<double>(used_up(v)) / static_cast<double>(rule_.limit); }

        return static_cast<double>(used(v)) / static_cast<double>(rule_.limit * rule_.window_ms);
    }

    bool admit(uint64_t state, uint64_t cost, uint64_t *next) const {
        View v = view(state);

        if (v.owes) { return admit_owing(v, state, cost, next); }

        uint64_t wanted = used(v) + cost * rule_.window_ms;

        if (cost > rule_.limit || wanted > rule_.limit * rule_.window_ms) { return false; }

        *next = cost == 0
                    ? state
                    : pack(v.kind, v.part, is_near_limit(wanted, rule_.limit * rule_.window_ms),
                           format(v.kind).add(v.counts, cost));
        return true;
    }

    /* Takes back a cost; `recorded` is the state as its admission left it, less
     * than 128 windows ago.  What is owed goes first. */
    uint64_t refund(uint64_t state, uint64_t recorded, uint64_t cost) const {
        state = valid(state);
        if (state == 0) { return 0; }

        return amend(state, cost, [&](CounterCounts &parts) {
            if (kind_of(recorded) >= kCounterKindsLength) { return; }

            uint64_t age
                = parts.newest
                  - CounterCounts::convert(newest_of(recorded), kind_of(recorded), parts.kind);

            if (age <= parts.n()) { parts.take(parts.n() - age, cost); }
        });
    }

    /* Does the same if the part of the admission is still the newest one, as mostly:
     * else returns false. */
    static bool refund_soon(uint64_t state, uint64_t recorded, uint64_t cost, uint64_t *next) {
        uint64_t counts = counts_of(state);

        if (((state ^ recorded) >> kHeadShift) != 0 || kind_of(state) >= kCounterKindsLength
            || !format_of(state).take(cost, &counts)) {
            return false;
        }

        *next = state - counts_of(state) + counts;
        return true;
    }

    /* Records a cost whatever the limit says.  Returns how many units the key
     * cannot owe: if they are more than the cost, `next` is not to be used.  What
     * exceeds the limit is owed: of the parts, the oldest one is
     * left out, as it fades, and the others belong to the present window. */
    uint64_t charge(uint64_t state, uint64_t cost, uint64_t *next) const {
        View v = view(state);

        if (v.owes) { return settle(used_up(v) + cost, next); }

        uint64_t all = format(v.kind).total(v.counts) + cost;

        /* mostly all parts have room for it */
        if (all <= rule_.limit) {
            *next = pack(v.kind, v.part, is_near_limit(all, rule_.limit),
                         format(v.kind).add(v.counts, cost));
            return 0;
        }

        CounterCounts parts(v.kind, v.part, v.counts);
        uint64_t taken = parts.recent() + cost;

        if (taken > rule_.limit) { return owe(taken, v.part / parts.n(), next); }

        parts.count[parts.n()] += cost;
        parts.fit(v.kind);
        *next = pack(parts.kind, parts.newest, is_near_limit(taken, rule_.limit), parts.encode());

        return 0;
    }

    /* Records a rejected cost in the newest part, as far as the limit has room for
     * it there.  A string of bits has room for no more in all parts: the oldest
     * requests leave it. */
    uint64_t record_rejected(uint64_t state, uint64_t cost) const {
        View v = view(state);

        if (v.owes) { return record_owing(v, state, cost); }

        CounterCounts parts(v.kind, v.part, v.counts);
        uint64_t before = parts.total();
        uint64_t &newest = parts.count[parts.n()];

        if (newest >= rule_.limit) { return state; }

        newest = std::min(rule_.limit, newest + cost);
        if (format(v.kind).is_string()) { parts.keep_newest(std::max(rule_.limit, before)); }

        return pack(v.kind, v.part, true, parts.encode());
    }

    /* Returns the state of a key that has used so much in each of n parts of a window and in
     * the one before them, the oldest first; 0 if no key under such a limit has n parts. */
    uint64_t state_of(uint64_t n, uint64_t newest, const uint64_t *count) const {
        for (unsigned kind = kind_; kind < kCounterKindsLength; kind++) {
            if (format(kind).parts() != n) { continue; }

            CounterCounts parts(kind, newest);

            std::copy_n(count, n + 1, parts.count);
            parts.cap(kLimitMax);

            bool is_near = is_near_limit(parts.total(), rule_.limit);

            parts.fit(kind);
            /* fewer parts have more in each */
            parts.cap(kLimitMax);

            return pack(parts.kind, parts.newest, is_near, parts.encode());
        }

        return 0;
    }

    /* Takes back a cost, of what was used last first. */
    uint64_t give_back(uint64_t state, uint64_t cost) const {
        state = valid(state);
        if (state == 0) { return 0; }

        return amend(state, cost, [&](CounterCounts &parts) {
            for (unsigned i = parts.n() + 1; i > 0; i--) {
                cost -= parts.take(i - 1, cost);
            }
        });
    }

    /* Returns how many epochs begin within a time from now on. */
    uint64_t epochs_within(uint64_t ms) const {
        return epoch_of(now_ms_ + ms, rule_.window_ms) - epoch();
    }

    /* Returns the ms until the last window in which a state owes. */
    uint64_t owed_ms(uint64_t state) const {
        if (!owes(state)) { return 0; }

        uint64_t last = debt_of(state).window * rule_.window_ms;

        return last - std::min(last, now_ms_);
    }

    /* True for a state that owes, or has owed until its window began. */
    static bool owes(uint64_t state) { return CounterDebt::is_one(state); }

    void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        View v = view(state);
        uint64_t full = rule_.limit * rule_.window_ms;

        if (v.owes) {
            describe_owing(v, cost, verdict);
            return;
        }

        describe_usage(
            {rule_.limit, rule_.limit, rule_.window_ms, used(v), full}, cost,
            [&](uint64_t room) { return wait_ms(v, room); }, verdict);
    }

    /* Returns the verdict's retry_after_ms alone. */
    uint64_t retry_after_ms(uint64_t state, uint64_t cost) const {
        return cost > rule_.limit ? kNever : wait_ms(view(state), rule_.limit - cost);
    }

    uint64_t expires_ms(uint64_t state) const { return wait_ms(own_view(valid(state)), 0); }

private:
    /* A state, seen at this moment. */
    struct View : CounterView {
        unsigned kind;
        uint64_t ends_ms; /* until nothing counts, if that is before the counts
                             have expired */
        bool owes;        /* the part is ahead of the present one, and */
        Debt debt;

        View(unsigned k, uint64_t p, uint64_t c, uint64_t e)
            : CounterView{p, c, e}, kind(k), ends_ms(UINT64_MAX), owes(false) {}

        bool is_empty() const { return format(kind).total(counts) == 0; }
    };

    static const CounterFormat &format(unsigned kind) { return kCounterFormats.format[kind]; }

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

            return {kind_, part_, counts, elapsed_};
        }

        return other_view(state);
    }

    /* Sees a state of another kind, or of a clock that is ahead. */
    [[gnu::noinline]] View other_view(uint64_t state) const {
        state = valid(state);

        if (owes(state)) { return debt_view(state); }

        if (state != 0 && kind_of(state) == kind_) {
            return at_present(kind_, newest_of(state), counts_of(state));
        }

        View own = own_view(state);

        if (own.is_empty()) { return none(); }

        View v = converted(state);

        v.ends_ms = wait_ms(own, 0);

        return v;
    }

    View none() const { return {kind_, part_, format(kind_).none(), elapsed_}; }

    View converted(uint64_t state) const {
        CounterCounts parts(kind_of(state), newest_of(state), counts_of(state));

        parts.fit(kind_);

        return at_present(parts.kind, parts.newest, parts.encode());
    }

    /* Sees a state of another key, as what it is. */
    View own_view(uint64_t state) const {
        if (owes(state)) { return debt_view(state); }

        return at_present(kind_of(state), newest_of(state), counts_of(state));
    }

    View at_present(unsigned kind, uint64_t newest, uint64_t counts) const {
        uint64_t units = now_ms_ * format(kind).parts();
        uint64_t part = units / rule_.window_ms;

        if (newest > part) { return {kind, newest, counts, 0}; }

        return {kind, part, format(kind).age(counts, part - newest),
                units - part * rule_.window_ms};
    }

    uint64_t used(const View &v) const { return rule_.used(format(v.kind), v); }

    /* Returns the ms until used <= room. */
    uint64_t wait_ms(const View &v, uint64_t room) const {
        if (v.owes) { return wait_owing_ms(v, room); }

        if (used(v) <= room * rule_.window_ms) { return 0; }

        return std::min(rule_.wait_ms(format(v.kind), v, room, now_ms_), v.ends_ms);
    }

    /* ---- of keys that owe ---- */

    uint64_t present_window() const { return now_ms_ / rule_.window_ms; }

    Debt debt_of(uint64_t state) const {
        return CounterDebt::read(state, present_window(), rule_.limit);
    }

    /* Returns the parts of a state that owes, of which the newest may be ahead. */
    CounterCounts parts_of(const Debt &debt) const {
        CounterCounts parts(CounterDebt::kind_of(debt, kind_), debt.window);

        parts.count[0] = debt.pace;
        parts.count[1] = debt.rest;

        return parts;
    }

    /* Sees it.  When its window has begun it is not converted to another kind, so
     * that the wait that was told before is true. */
    [[gnu::noinline]] View debt_view(uint64_t state) const {
        Debt debt = debt_of(state);
        CounterCounts parts = parts_of(debt);
        View v = at_present(parts.kind, parts.newest, parts.encode());

        v.owes = debt.window > present_window();
        v.debt = debt;

        return v.is_empty() ? none() : v;
    }

    /* Returns the requests used. */
    uint64_t used_up(const View &v) const { return v.debt.used(present_window()); }

    /* Makes a state that has used so many requests, at a window. */
    uint64_t owe(uint64_t taken, uint64_t window, uint64_t *next) const {
        uint64_t lost;

        *next = CounterDebt::make(Debt::of(taken, rule_.limit, window, &lost));

        return lost;
    }

    /* Makes one for a key that owed, and has now used so many requests.  If they
     * fit the limit, all are of the present part. */
    uint64_t settle(uint64_t taken, uint64_t *next) const {
        if (taken > rule_.limit) { return owe(taken, present_window(), next); }

        const CounterFormat &f = format(kind_);

        *next = pack(kind_, part_, is_near_limit(taken, rule_.limit), f.add(f.none(), taken));

        return 0;
    }

    /* A key owes under one limit, and may have room under a higher one. */
    [[gnu::noinline]] bool admit_owing(const View &v, uint64_t state, uint64_t cost,
                                       uint64_t *next) const {
        uint64_t wanted = used_up(v) + cost;

        if (wanted > rule_.limit) { return false; }

        *next = state;
        if (cost != 0) { settle(wanted, next); }

        return true;
    }

    [[gnu::noinline]] uint64_t record_owing(const View &v, uint64_t state, uint64_t cost) const {
        uint64_t taken = used_up(v);

        if (taken < rule_.limit) { settle(std::min(rule_.limit, taken + cost), &state); }

        return state;
    }

    /* Changes the parts of a valid state, or else takes a cost off what it owes. */
    template <class Change>
    uint64_t amend(uint64_t state, uint64_t cost, const Change &change) const {
        if (!owes(state)) {
            CounterCounts parts(kind_of(state), newest_of(state), counts_of(state));

            change(parts);

            return pack(parts.kind, parts.newest, is_near(state), parts.encode());
        }

        Debt debt = debt_of(state);

        if (debt.window > present_window()) {
            uint64_t taken = debt.used(present_window());
            uint64_t next;

            settle(taken - std::min(taken, cost), &next);

            return next;
        }

        CounterCounts parts = parts_of(debt);

        change(parts);

        return CounterDebt::make({debt.window, parts.count[0], parts.count[1]});
    }

    [[gnu::noinline]] void describe_owing(const View &v, uint64_t cost, Verdict *verdict) const {
        describe_usage(
            {rule_.limit, rule_.limit, 1, used_up(v), rule_.limit}, cost,
            [&](uint64_t room) { return wait_owing_ms(v, room); }, verdict);
    }

    /* Returns the ms until used <= room: until a window begins, or some time in
     * the last one or after it. */
    [[gnu::noinline]] uint64_t wait_owing_ms(const View &v, uint64_t room) const {
        if (used_up(v) <= room) { return 0; }

        if (room < v.debt.pace + v.debt.rest) {
            return rule_.wait_ms(format(v.kind), v, room, now_ms_);
        }

        return v.debt.window_of(room) * rule_.window_ms - now_ms_;
    }

    /* So many requests may be owed that their product is none. */
    uint64_t rank_of_debt(const View &v) const {
        uint64_t left = v.owes ? std::min(used_up(v), kLimitMax) * rule_.window_ms : used(v);

        return rank_of(left, true);
    }

    CounterRule rule_;
    uint64_t now_ms_;
    unsigned kind_;
    uint64_t part_;    /* the present one, by that kind */
    uint64_t elapsed_; /* of it, x n, 0 .. w - 1 */
};

} // namespace limit_sliding
