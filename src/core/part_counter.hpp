/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/bit_string.hpp"
#include "core/counter_counts.hpp"
#include "core/counter_format.hpp"
#include "core/divisor.hpp"
#include "core/policy.hpp"
#include "core/rank.hpp"

namespace limit_sliding {

/*
 * algorithm=counter with precision=auto or 1, the sliding window counter.  A
 * window of w ms is cut into n parts.  A key's state has the requests of the
 * present part, of the n - 1 before it, and of the oldest one, of which the
 * window still has a share.  Time is counted in ticks, n in a millisecond, so
 * that a part has w of them.  With `gone` ticks of the present part elapsed
 *
 *     used = the newest n counts + oldest - min(oldest x gone/w, limit/n)
 *
 * and a request of cost c is admitted when used + c <= limit.  So no interval
 * of w ms has more than limit x (1 + 1/n) requests.  With one part there is no
 * such minimum: used is the present count + oldest x (w - gone)/w.  With
 * `strict`, and in a string of bits, the oldest part counts in full: then no
 * interval of w ms has more requests than the limit.  All of this is exact, as
 * `used` is kept multiplied by w; limit x w/n is rounded down.
 *
 * State: format 4 bits, a bit for rank.hpp, number of the newest part 13,
 * counts 44 (counter_format.hpp).  A key's limit chooses the format, and with
 * it n.  A request with another limit takes a state as it is.  What it records
 * is in the finer one of the state's format and its limit's, if that holds the
 * counts, else in the coarser one; if neither does, in the first that does.
 *
 * In another format, the requests of a part are those of the part that has its
 * last millisecond.  So no request is ever taken for older than it is, and each
 * counts in full for (n-1)/n of a window at least, as if it had been recorded
 * in that format.
 *
 * The number of a part wraps.  The zone's epochs (table.hpp) keep states from
 * growing old enough for that to matter.
 *
 * An object is this algorithm at one moment, under one limit.  If the caller
 * names the kind of the limit's format, the compiler leaves out the others.
 */
template <CounterKind kKind = CounterKind::kAny>
class PartCounter {
public:
    /* The kind for a limit. */
    static CounterKind kind_of(const Policy &policy, uint32_t limit)
    {
        return policy.precision != 0
                       || limit
                              > counter_format::kAll[counter_format::kWhole - 1]
                                    .most
                   ? CounterKind::kWhole
               : limit <= counter_format::kAll[counter_format::kStrings - 1]
                              .most
                   ? CounterKind::kString
                   : CounterKind::kFlat;
    }

    /* `limit` is 1 .. kCountMax. */
    PartCounter(const Policy &policy, uint64_t now_ms, uint32_t limit)
        : window_(policy.window_ms,
                  policy.window_inverse != 0
                      ? policy.window_inverse
                      : Divisor::inverse_of(policy.window_ms)),
          now_ms_(now_ms), limit_(limit), strict_(policy.strict),
          own_(find(policy, limit))
    {
        /* keeps the compiler from finding it anew for each of its fields */
        asm("" : "+r"(own_));

        Quotient q = window_.divide(now_ms * own().parts);

        part_ = q.whole;
        gone_ = q.rest;
        weighed_ = strict_ ? 0 : q.rest;
    }

    /* 32 to 64 windows.  A state two epochs old has not wrapped. */
    uint64_t epoch() const
    {
        return now_ms_
               >> (kEpochShift
                   - static_cast<unsigned>(__builtin_clzll(window_.value())));
    }

    /* How much a state constrains its key; 0: as little as none. */
    uint64_t used(uint64_t state) const { return used(view(state)); }

    uint64_t capacity() const { return limit_; }

    /* The same of another key, whose limit is not known. */
    uint64_t rank(uint64_t state) const
    {
        View v = view(state);
        uint64_t taken = used(v);
        uint64_t all = (v.recent + v.oldest) * window_.value();

        /* no more so when most of it has decayed */
        return rank_of(std::min(taken, kNearLimit - 1),
                       is_near(state) && taken >= all - taken);
    }

    double share(uint64_t state) const
    {
        return static_cast<double>(used(state))
               / static_cast<double>(limit_ * window_.value());
    }

    /*
     * Is all that admit<true>() handles: a state of this limit's format, of
     * now or of before, with room for the request?  So it is for most.
     */
    [[gnu::always_inline]] bool is_plain(uint64_t state, uint32_t) const
    {
        const CounterFormat &f = own();

        return state >> kFormatShift == f.number && age_of(state) <= f.parts
               && (kKind == CounterKind::kString || kKind == CounterKind::kFlat
                   || limit_ <= f.most);
    }

    template <bool kPlain = false>
    [[gnu::always_inline]] bool admit(uint64_t state, uint32_t cost,
                                      uint64_t *next) const
    {
        if (!kPlain) {
            return admit_any(state, cost, next);
        }

        const CounterFormat &f = own();

        if (kKind == CounterKind::kString
            || (kKind == CounterKind::kAny
                && f.kind == CounterFormat::kString)) {
            return admit_string(state, cost, next);
        }

        uint64_t counts = flat(state);
        uint64_t full = limit_ * window_.value();
        uint64_t wanted = used(counter_counts::recent_of(counts, f),
                               counts >> f.oldest, weighed_, f)
                          + cost * window_.value();

        if (cost > limit_ || wanted > full) {
            return false;
        }

        *next = cost == 0 ? state
                          : pack(own().number, is_near_limit(wanted, full),
                                 part_, counts + cost);
        return true;
    }

    /*
     * Records a cost whatever the limit, as far as it fits into the coarsest
     * format.
     */
    uint64_t charge(uint64_t state, uint32_t cost) const
    {
        View v = view(state);
        uint64_t wanted = used(v) + cost * window_.value();
        uint64_t full = limit_ * window_.value();
        bool near = wanted >= full || is_near_limit(wanted, full);

        return cost == 0 ? state : record(v, cost, near);
    }

    /*
     * `recorded` is the state as the admission left it.  If the format has
     * changed since, it is not known whose the counts of a part are; those of
     * the oldest part go first, as they count least.
     */
    uint64_t refund(uint64_t state, uint64_t recorded, uint32_t cost) const
    {
        unsigned number = number_of(state);

        if (std::max(number, number_of(recorded)) >= counter_format::kFormats) {
            return state;
        }

        const CounterFormat &f = format(number);
        counter_counts::Counts counts
            = counter_counts::decode(counts_of(state), f);
        uint64_t raw = 0;

        if (number == number_of(recorded)) {
            uint64_t age = (part_of(state) - part_of(recorded)) & kPartMask;

            if (age <= f.parts) {
                counts[age] -= std::min<uint64_t>(counts[age], cost);
            }
        } else if (counts_still(state, recorded)) {
            uint64_t rest = cost;

            for (unsigned i = f.parts + 1u; i-- > 0;) {
                uint64_t taken = std::min(counts[i], rest);

                counts[i] -= taken;
                rest -= taken;
            }
        }

        counter_counts::encode(counts, f, &raw);

        return pack(number, is_near(state), part_of(state), raw);
    }

    void describe(uint64_t state, uint32_t cost, Verdict *verdict) const
    {
        View v = view(state);
        uint64_t taken = used(v);
        uint64_t whole = v.oldest == 0 ? v.recent : window_.rounded_up(taken);
        uint64_t room = whole >= limit_ ? 0 : limit_ - whole;

        verdict->limit = limit_;
        verdict->remaining = static_cast<uint32_t>(room);
        verdict->excess = excess(v, taken, cost);
        verdict->reset_ms
            = room == limit_ ? 0 : wait(v, taken, limit_ - room - 1);
        verdict->retry_after_ms = cost > limit_ ? kNever
                                  : cost == room + 1
                                      ? verdict->reset_ms
                                      : wait(v, taken, limit_ - cost);
        verdict->delay_ms = 0;
    }

    uint64_t expires_ms(uint64_t state) const
    {
        View v = view(state);

        return wait(v, used(v), 0);
    }

private:
    static constexpr unsigned kPartBits = 13;
    static constexpr unsigned kFormatShift
        = 1 + kPartBits + counter_format::kCountsBits;
    static constexpr unsigned kEpochShift = 64 + 5;

    static constexpr uint64_t kCountsMask
        = (1ULL << counter_format::kCountsBits) - 1;
    static constexpr uint64_t kPartMask = (1u << kPartBits) - 1;

    /* In parts.  What seems to be older is yet to come. */
    static constexpr uint64_t kOldest = 5u << (kPartBits - 3);

    static_assert(kFormatShift + 4 == 62, "a state");
    static_assert((2 * 64 + 2) * counter_format::kPartsMax < kOldest,
                  "a state must not wrap");

    /* A state as of this moment, or as of its own time if that is to come. */
    struct View {
        unsigned number; /* of its format */
        uint64_t part;   /* the newest one */
        uint64_t counts; /* as in a state of that part */
        uint64_t recent; /* requests that count in full */
        uint64_t oldest; /* those of the oldest part, if they do not */
        uint64_t gone;   /* ticks of the newest part, 0 .. w - 1 */
        uint64_t ahead;  /* ticks from now to that time */
    };

    static const CounterFormat &format(unsigned number)
    {
        return counter_format::kAll[number];
    }

    static const CounterFormat *find(const Policy &policy, uint32_t limit)
    {
        switch (kKind) {
        case CounterKind::kString:
            return &format(counter_format::kFinest[limit]);
        case CounterKind::kFlat:
            return &format(counter_format::finest(limit));
        case CounterKind::kWhole:
            return &format(counter_format::kWhole);
        default:
            return &format(policy.precision == 0 ? counter_format::finest(limit)
                                                 : counter_format::kWhole);
        }
    }

    const CounterFormat &own() const
    {
        return kKind == CounterKind::kWhole
                   ? counter_format::kAll[counter_format::kWhole]
                   : *own_;
    }

    static unsigned number_of(uint64_t state)
    {
        return static_cast<unsigned>(state >> kFormatShift);
    }

    static bool is_near(uint64_t state)
    {
        return (state >> (kFormatShift - 1) & 1) != 0;
    }

    static uint64_t part_of(uint64_t state)
    {
        return state >> counter_format::kCountsBits & kPartMask;
    }

    static uint64_t counts_of(uint64_t state) { return state & kCountsMask; }

    static uint64_t pack(unsigned number, bool is_near, uint64_t part,
                         uint64_t counts)
    {
        uint64_t head = uint64_t{number} << 1 | uint64_t{is_near};

        return (head << kPartBits | (part & kPartMask))
                   << counter_format::kCountsBits
               | counts;
    }

    View none() const { return {own().number, part_, 0, 0, 0, gone_, 0}; }

    /* Out of line: of a state of this limit's format admit() needs less. */
    [[gnu::noinline]] View view(uint64_t state) const
    {
        View v = {number_of(state), part_, counts_of(state), 0, 0, gone_, 0};

        if (v.counts == 0 || v.number >= counter_format::kFormats) {
            return none();
        }

        const CounterFormat &f = format(v.number);

        if (f.parts != own().parts) {
            Quotient q = window_.divide(now_ms_ * f.parts);

            v.part = q.whole;
            v.gone = q.rest;
        }

        uint64_t age = (v.part - part_of(state)) & kPartMask;

        if (age > f.parts && age <= kOldest) {
            return none();
        }

        if (age > kOldest) {
            uint64_t ahead = kPartMask + 1 - age;

            v.part += ahead;
            v.ahead = ahead * window_.value() - v.gone;
            v.gone = 0;
        } else {
            v.counts = counter_counts::aged(v.counts, f, age);
        }

        switch (f.kind) {
        case CounterFormat::kString:
            v.recent = bit_string::count(v.counts);
            break;
        case CounterFormat::kFlat:
            v.recent = counter_counts::recent_of(v.counts, f);
            v.oldest = v.counts >> f.oldest;
            break;
        default:
            v.recent = v.counts & counter_format::kCountMax;
            v.oldest = v.counts >> f.oldest << f.unit;
            break;
        }

        return v.counts == 0 ? none() : v;
    }

    uint64_t age_of(uint64_t state) const
    {
        return (part_ - part_of(state)) & kPartMask;
    }

    /* Flat counts as of now. */
    uint64_t flat(uint64_t state) const
    {
        return counts_of(state) << age_of(state) * own().bits & own().kept;
    }

    /* The most that may be gone of an oldest part, x w. */
    uint64_t most_gone(const CounterFormat &f) const
    {
        return strict_ ? 0 : most_of(f);
    }

    /* The same unless `strict`. */
    uint64_t most_of(const CounterFormat &f) const
    {
        return f.parts == 1 ? UINT64_MAX
                            : f.ticks.divide(limit_ * window_.value()).whole;
    }

    /* With `strict`, `gone` is 0. */
    [[gnu::always_inline]] uint64_t used(uint64_t recent, uint64_t oldest,
                                         uint64_t gone,
                                         const CounterFormat &f) const
    {
        uint64_t all = (recent + oldest) * window_.value();

        gone *= oldest;

        /* of fewer it is never too much, which takes less to tell */
        if (oldest * f.parts > limit_) {
            gone = std::min(gone, most_of(f));
        }

        return all - gone;
    }

    uint64_t used(const View &v) const
    {
        return v.oldest == 0 ? v.recent * window_.value()
                             : used(v.recent, v.oldest, strict_ ? 0 : v.gone,
                                    format(v.number));
    }

    [[gnu::always_inline]] bool admit_string(uint64_t state, uint32_t cost,
                                             uint64_t *next) const
    {
        uint64_t string = counts_of(state);
        uint64_t age = age_of(state);

        if (age != 0) {
            string = counter_counts::string_aged(string, own(), age);
        }

        uint64_t wanted = uint64_t{bit_string::count(string)} + cost;

        if (wanted > limit_) {
            return false;
        }

        *next = cost == 0
                    ? state
                    : pack(own().number, is_near_limit(wanted, limit_), part_,
                           counter_counts::string_with(string, cost));
        return true;
    }

    [[gnu::noinline]] bool admit_any(uint64_t state, uint32_t cost,
                                     uint64_t *next) const
    {
        View v = view(state);
        uint64_t wanted = used(v) + cost * window_.value();
        uint64_t full = limit_ * window_.value();

        if (cost > limit_ || wanted > full) {
            return false;
        }

        *next
            = cost == 0 ? state : record(v, cost, is_near_limit(wanted, full));
        return true;
    }

    /* The state that has this cost as well, in the format for it. */
    uint64_t record(const View &v, uint64_t cost, bool near) const
    {
        unsigned number = std::min<unsigned>(v.number, own().number);
        uint64_t state;

        if (record_in(number, v, cost, near, &state)) {
            return state;
        }

        for (number = std::max<unsigned>(v.number, own().number);
             number < counter_format::kFormats; number++) {
            if (record_in(number, v, cost, near, &state)) {
                return state;
            }
        }

        number = counter_format::kFormats - 1;
        record_in(number, v, room_in(number, v), near, &state);

        return state;
    }

    bool record_in(unsigned number, const View &v, uint64_t cost, bool near,
                   uint64_t *state) const
    {
        const CounterFormat &f = format(number);

        /* what counts in full does so in a finer format, too */
        if (number <= v.number && v.recent + cost > f.most) {
            return false;
        }

        if (number != v.number) {
            return convert(number, v, cost, near, state);
        }

        *state = pack(number, near, v.part,
                      f.kind == CounterFormat::kString
                          ? counter_counts::string_with(v.counts, cost)
                          : v.counts + cost);
        return true;
    }

    /* What the newest part of a view has room for in the coarsest format. */
    static uint64_t room_in(unsigned number, const View &v)
    {
        uint64_t most = format(number).most;
        uint64_t all = v.recent + (v.number == number ? 0 : v.oldest);

        return most - std::min(most, all);
    }

    /* The last millisecond of a part. */
    uint64_t ends_ms(uint64_t part, const CounterFormat &f) const
    {
        return ((part + 1) * window_.value() - 1) / f.parts;
    }

    /* A part's first millisecond if it is yet to come, else now. */
    uint64_t time_of(const View &v) const
    {
        return v.ahead == 0 ? now_ms_
                            : format(v.number).ticks.rounded_up(
                                v.part * window_.value());
    }

    uint64_t part_at(uint64_t ms, const CounterFormat &f) const
    {
        return window_.divide(ms * f.parts).whole;
    }

    /* False if that format does not hold it. */
    bool convert(unsigned number, const View &v, uint64_t cost, bool near,
                 uint64_t *state) const
    {
        const CounterFormat &from = format(v.number);
        const CounterFormat &f = format(number);
        uint64_t part = part_at(time_of(v), f);
        counter_counts::Counts then = counter_counts::decode(v.counts, from);
        counter_counts::Counts counts = {};
        uint64_t raw;

        counts[0] = cost;

        for (unsigned i = 0; i <= from.parts; i++) {
            if (then[i] != 0) {
                uint64_t to = part_at(ends_ms(v.part - i, from), f);
                uint64_t age = part - std::min(part, to);

                counts[std::min<uint64_t>(age, f.parts)] += then[i];
            }
        }

        if (!counter_counts::encode(counts, f, &raw)) {
            return false;
        }

        *state = pack(number, near, part, raw);
        return true;
    }

    /* Does what was recorded in one format still count in another? */
    bool counts_still(uint64_t state, uint64_t recorded) const
    {
        const CounterFormat &then = format(number_of(recorded));
        const CounterFormat &f = format(number_of(state));
        uint64_t ends = ends_ms(near_now(part_of(recorded), then), then);

        return part_at(ends, f) + f.parts >= near_now(part_of(state), f);
    }

    /* The part of this number, modulo 2^13, that a state is of. */
    uint64_t near_now(uint64_t part, const CounterFormat &f) const
    {
        uint64_t now = part_at(now_ms_, f);

        return now + ((part - now + kOldest) & kPartMask) - kOldest;
    }

    /*
     * Milliseconds until used <= room, the requests that may still count.
     * Counts go one by one until the newer ones fit, and then only part of the
     * oldest one has to: oldest x left <= (room - newer) x w is solved for
     * left.  A flat format's `used` only falls.  A large one's grows when a
     * part ends, as the count is rounded up; if it no longer fits then, that
     * is not the moment.
     */
    uint64_t wait(const View &v, uint64_t taken, uint64_t room) const
    {
        const CounterFormat &f = format(v.number);
        uint64_t w = window_.value();

        if (taken <= room * w) {
            return 0;
        }

        uint64_t ends = v.ahead + w - v.gone; /* ticks, until the next part */

        if (f.kind == CounterFormat::kString) {
            auto newer = static_cast<unsigned>(room);
            unsigned i = bit_string::position(v.counts, newer) - newer;

            return f.ticks.rounded_up(ends + (f.parts - i) * w);
        }

        uint64_t newer = v.recent;
        uint64_t oldest = v.oldest;

        for (unsigned i = f.parts;; ends += w) {
            if (newer <= room) {
                uint64_t left = fitting(oldest, room - newer, f);

                if (left > 0 || i == 0 || f.kind == CounterFormat::kFlat) {
                    return f.ticks.rounded_up(ends - left);
                }
            }

            i--;
            oldest = f.kind == CounterFormat::kFlat
                         ? v.counts >> i * f.bits & f.most
                         : v.recent;
            newer -= oldest;
            oldest = counter_counts::in_units(oldest, f) << f.unit;
        }
    }

    /* Ticks that may be left of a part when the oldest count has such room. */
    uint64_t fitting(uint64_t oldest, uint64_t room,
                     const CounterFormat &f) const
    {
        uint64_t w = window_.value();

        if (oldest <= room) {
            return w;
        }

        return (oldest - room) * w > most_gone(f) ? 0 : room * w / oldest;
    }

    /* Over the limit with this request, in 1/1000 request, rounded up. */
    uint64_t excess(const View &v, uint64_t taken, uint64_t cost) const
    {
        if (v.oldest == 0) {
            return v.recent + cost > limit_ ? (v.recent + cost - limit_) * 1000
                                            : 0;
        }

        uint64_t wanted = taken + cost * window_.value();
        uint64_t full = limit_ * window_.value();

        if (wanted <= full) {
            return 0;
        }

        Quotient q = window_.divide(wanted - full);

        return q.whole * 1000 + window_.rounded_up(q.rest * 1000);
    }

    Divisor window_;
    uint64_t now_ms_;
    uint64_t part_;
    uint64_t gone_;    /* ticks of the part, 0 .. w - 1 */
    uint64_t weighed_; /* those that the oldest part's share is less by */
    uint32_t limit_;
    bool strict_;
    const CounterFormat *own_; /* of the limit */
};

} // namespace limit_sliding
