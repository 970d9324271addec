/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/counter_format.hpp"
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
class Counter {
public:
    Counter(const Policy &policy, uint64_t now_ms, uint64_t limit)
        : window_ms_(policy.window_ms), now_ms_(now_ms), limit_(limit), strict_(policy.strict),
          first_kind_(policy.precision == 1 ? kCounterWhole : 0),
          kind_(std::max(counter_kind(limit), first_kind_)) {
        uint64_t units = now_ms * format(kind_).parts();

        part_ = units / window_ms_;
        elapsed_ = units - part_ * window_ms_;
    }

    /* Returns the epoch, of 32 to 64 windows; a state two epochs old has not
     * wrapped. */
    uint64_t epoch() const { return now_ms_ >> (69 - __builtin_clzll(window_ms_)); }

    /* Returns how much a state constrains its key; 0: as little as no state. */
    uint64_t used(uint64_t state) const { return used(view(state)); }

    uint64_t capacity() const { return limit_; }

    /* Returns the same for another key, whose limit is not known. */
    uint64_t rank(uint64_t state) const {
        View v = own_view(state);
        uint64_t all = format_of(state).total(counts_of(state)) * window_ms_;
        uint64_t left = v.total() * window_ms_ - v.fading(strict_);

        /* a state is no longer near when most of it has decayed */
        return rank_of(left, is_near(state) && left >= all - left);
    }

    double share(uint64_t state) const {
        return static_cast<double>(used(state)) / static_cast<double>(limit_ * window_ms_);
    }

    bool admit(uint64_t state, uint64_t cost, uint64_t *next) const {
        View v = view(state);
        uint64_t wanted = used(v) + cost * window_ms_;

        if (cost > limit_ || wanted > limit_ * window_ms_) { return false; }

        *next = cost == 0 ? state
                          : pack(v.kind, v.part, is_near_limit(wanted, limit_ * window_ms_),
                                 format(v.kind).add(v.counts, cost));
        return true;
    }

    /* Takes back a cost; `recorded` is the state as its admission left it, less
     * than 128 windows ago. */
    uint64_t refund(uint64_t state, uint64_t recorded, uint64_t cost) const {
        Parts parts(*this, state);
        uint64_t age = parts.newest - convert(newest_of(recorded), kind_of(recorded), parts.kind);

        if (age <= parts.n()) {
            uint64_t &count = parts.count[parts.n() - age];

            count -= std::min(count, cost);
        }

        return pack(parts.kind, parts.newest, is_near(state), parts.encode());
    }

    void describe(uint64_t state, uint64_t cost, Verdict *verdict) const {
        View v = view(state);
        uint64_t full = limit_ * window_ms_;

        describe_usage(
            {static_cast<uint32_t>(limit_), limit_, window_ms_, used(v), full},
            static_cast<uint32_t>(cost), [&](uint64_t room) { return wait_ms(v, room); }, verdict);
    }

    uint64_t expires_ms(uint64_t state) const { return wait_ms(own_view(state), 0); }

private:
    static constexpr unsigned kPartBits = 13;
    static constexpr uint64_t kPartMask = (1u << kPartBits) - 1;

    /* A state lives for two epochs, and for the window after its own.  The rest
     * is for clocks that are ahead of ours. */
    static constexpr uint64_t kOldest = 2 * 64 * kCounterPartsMax + kCounterPartsMax;

    static_assert(kOldest + kOldest / 4 < kPartMask, "a state must not wrap");
    static_assert(kCounterKindsLength < 15, "the state of all ones is the table's");

    /* A state, seen at this moment. */
    struct View {
        unsigned kind;
        uint64_t part;                 /* the newest, counted from the zone's time 0 */
        uint64_t counts;               /* up to that part */
        uint64_t elapsed;              /* of that part, x n, 0 .. w - 1 */
        uint64_t ends_ms = UINT64_MAX; /* until nothing counts, if that is before
                                          the counts have expired */

        uint64_t total() const { return format(kind).total(counts); }

        /* Returns the request-milliseconds by which the oldest part has
         * faded. */
        uint64_t fading(bool strict) const {
            return strict || format(kind).is_string() ? 0 : format(kind).oldest(counts) * elapsed;
        }
    };

    /* The counts of a state as it was made. */
    struct Parts {
        unsigned kind;
        uint64_t newest;
        uint64_t count[kCounterPartsMax + 1];

        Parts(const Counter &counter, uint64_t state)
            : kind(kind_of(state)), newest(counter.newest_of(state)) {
            format(kind).decode(counts_of(state), count);
        }

        unsigned n() const { return format(kind).parts(); }
        uint64_t encode() const { return format(kind).encode(count); }

        /* Becomes a kind. */
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
    };

    static constexpr CounterFormat format(unsigned kind) {
        return CounterFormat(kCounterKinds[kind]);
    }

    static CounterFormat format_of(uint64_t state) { return format(kind_of(state)); }

    static uint64_t counts_of(uint64_t state) { return state & CounterFormat::kMask; }

    static bool is_near(uint64_t state) { return (state >> CounterFormat::kBits & 1) != 0; }

    /* Returns the kind and the number of the newest part. */
    static uint64_t head_of(uint64_t state) { return state >> (CounterFormat::kBits + 1); }

    static uint64_t head(unsigned kind, uint64_t part) {
        return (kind + 1) << kPartBits | (part & kPartMask);
    }

    /* The state 0 may be of any kind. */
    static unsigned kind_of(uint64_t state) {
        return state == 0 ? 0 : static_cast<unsigned>(head_of(state) >> kPartBits) - 1;
    }

    static uint64_t pack(unsigned kind, uint64_t part, bool is_near, uint64_t counts) {
        return (head(kind, part) << 1 | uint64_t{is_near}) << CounterFormat::kBits | counts;
    }

    /* Returns the number of the part of another kind in which a part ends. */
    static uint64_t convert(uint64_t part, unsigned from, unsigned to) {
        uint64_t n = format(from).parts();

        return ((part + 1) * format(to).parts() + n - 1) / n - 1;
    }

    /* Returns the number of a state's newest part, counted from time 0. */
    uint64_t newest_of(uint64_t state) const {
        uint64_t present = now_ms_ * format_of(state).parts() / window_ms_;
        uint64_t age = (present - head_of(state)) & kPartMask;

        return age <= kOldest ? present - age : present + (kPartMask + 1 - age);
    }

    View view(uint64_t state) const {
        if (head_of(state) == head(kind_, part_)) {
            return {kind_, part_, counts_of(state), elapsed_};
        }

        return other_view(state);
    }

    /* Sees a state whose newest part is another one, or which is of another
     * kind. */
    [[gnu::noinline]] View other_view(uint64_t state) const {
        if (counts_of(state) != 0 && kind_of(state) == kind_) {
            return at_present(kind_, newest_of(state), counts_of(state));
        }

        View own = own_view(state);

        if (own.total() == 0) { return {kind_, part_, 0, elapsed_}; }

        View v = converted(state);

        v.ends_ms = wait_ms(own, 0);

        return v;
    }

    View converted(uint64_t state) const {
        Parts parts(*this, state);

        for (unsigned kind = kind_;; kind++) {
            Parts moved = parts;

            moved.convert_to(kind);

            if (kind == kCounterKindsLength - 1 || format(kind).fits(moved.count)) {
                return at_present(kind, moved.newest, moved.encode());
            }
        }
    }

    /* Sees a state of another key, as what it is. */
    View own_view(uint64_t state) const {
        return at_present(kind_of(state), newest_of(state), counts_of(state));
    }

    View at_present(unsigned kind, uint64_t newest, uint64_t counts) const {
        uint64_t units = now_ms_ * format(kind).parts();
        uint64_t part = units / window_ms_;

        if (newest > part) { return {kind, newest, counts, 0}; }

        return {kind, part, format(kind).age(counts, part - newest), units - part * window_ms_};
    }

    uint64_t used(const View &v) const {
        uint64_t faded = v.fading(strict_);

        return v.total() * window_ms_ - (faded == 0 ? 0 : std::min(faded, fading_max(v)));
    }

    /* Returns the most that fading() may take off. */
    uint64_t fading_max(const View &v) const {
        unsigned n = format(v.kind).parts();

        return n == 1 ? UINT64_MAX : limit_ / n * window_ms_;
    }

    /* Returns the ms until used <= room, the requests that may still count.
     * `used` only falls while nothing is admitted.  It happens while part i is
     * the oldest one, as soon as that has faded enough, or when it ends. */
    uint64_t wait_ms(const View &v, uint64_t room) const {
        if (used(v) <= room * window_ms_) { return 0; }

        uint64_t count[kCounterPartsMax + 1];
        uint64_t rest = v.total();
        uint64_t i = 0;

        format(v.kind).decode(v.counts, count);
        rest -= count[0];

        while (rest > room) {
            rest -= count[++i];
        }

        uint64_t starts = (v.part + i) * window_ms_;
        uint64_t fades = strict_ || format(v.kind).is_string() ? 0 : fading_max(v);
        uint64_t surplus = rest + count[i] > room ? (rest + count[i] - room) * window_ms_ : 0;
        uint64_t elapsed = surplus == 0       ? 0
                           : surplus <= fades ? (surplus + count[i] - 1) / count[i]
                                              : window_ms_;
        unsigned n = format(v.kind).parts();

        return std::min((starts + elapsed + n - 1) / n - now_ms_, v.ends_ms);
    }

    uint64_t window_ms_;
    uint64_t now_ms_;
    uint64_t limit_;
    bool strict_;
    unsigned first_kind_; /* of this precision */
    unsigned kind_;
    uint64_t part_;    /* the present one, by that kind */
    uint64_t elapsed_; /* of it, x n, 0 .. w - 1 */
};

} // namespace limit_sliding
