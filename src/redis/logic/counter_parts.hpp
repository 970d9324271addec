/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>

#include "core/counter_kinds.hpp"
#include "core/describe.hpp"
#include "core/policy.hpp"
#include "redis/logic/owed.hpp"

namespace limit_sliding {

/* The most parts of a window, which a precision can ask for. */
constexpr unsigned kPartsMax = 60;

/* Returns the parts of a counter's window, as most keys of this limit have. */
inline uint64_t counter_parts_of(const Policy &policy, uint64_t limit) {
    return policy.precision == 0 ? counter_parts(limit) : policy.precision;
}

/*
 * algorithm=counter with n parts of w/n ms, from what the script tells of them:
 * n, the number of the newest part, and the requests in each of the n + 1 parts
 * that the window reaches into, the oldest first.  With e/n ms of the newest part
 * elapsed
 *
 *     used = all - min(oldest x e/w, most)
 *
 * where `most` is 0 if the counter is strict, floor(limit/n) if n > 1 follows
 * from the limit, and else has no bound.  The newest part may be yet to begin: e
 * is 0 until then.  `spent` has been added to it since, and then `rejected`, as far
 * as Counter::record_rejected() does so.  A state that had another
 * number of parts may end earlier than these.  As in Counter, `used` is kept
 * multiplied by w, and all of it is exact.
 *
 * What a key owes, until the part in which that ends, is told otherwise.  From
 * then on it is a counter of one part, or of the precision.
 */
class CounterParts {
public:
    /* `owed` is what the key owes, nullptr if nothing. */
    CounterParts(const Policy &policy, uint64_t limit, uint64_t now_ms, const int64_t *values,
                 const Owed *owed, uint64_t spent, uint64_t rejected)
        : window_ms_(policy.window_ms), now_ms_(now_ms), newest_(static_cast<uint64_t>(values[1])) {
        uint64_t taken = spent
                         + (owed != nullptr ? static_cast<uint64_t>(owed->used(now_ms))
                                            : static_cast<uint64_t>(values[3 + values[0]]));
        uint64_t recorded = std::min(rejected, limit - std::min(limit, taken));

        if (owed != nullptr) {
            read_owed(policy, limit, *owed, spent + recorded);
        } else {
            parts_ = static_cast<uint64_t>(values[0]);
            std::copy_n(values + 3, parts_ + 1, counts_);
        }

        if (spent + recorded > 0) {
            counts_[parts_] += spent + recorded;
            if (policy.precision == 0 && parts_ > 7) { keep_newest(limit, recorded); }
            if (policy.precision == 0) { fit(limit); }
        } else if (values[0] > 0 && values[2] > 0) {
            ends_ms_ = static_cast<uint64_t>(values[2]);
        }

        if (policy.strict) {
            most_ = 0;
        } else if (policy.precision == 0 && parts_ > 1) {
            most_ = limit / parts_;
        }
    }

    Wide used() const {
        if (owed_.windows(now_ms_) > 0) { return owed_.used(now_ms_) * window_ms_; }

        uint64_t now = now_ms_ * parts_;
        uint64_t elapsed = std::min(now - std::min(now, begins()), window_ms_);
        Wide gone = std::min(Wide{counts_[0]} * elapsed, Wide{most_} * window_ms_);

        return all() * window_ms_ - gone;
    }

    /* Returns the ms until used <= room requests, if nothing is admitted. */
    uint64_t wait_ms(uint64_t room) const {
        if (used() <= Wide{room} * window_ms_) { return 0; }

        if (owed_.parts > 0 && room >= owed_.each + owed_.last) {
            return owed_.falls_ms(room) - now_ms_;
        }

        /* it happens while part i is the oldest one, when so much has elapsed */
        Wide rest = all();
        Wide elapsed = 0;
        uint64_t i = 0;

        for (; rest > room; i++) {
            Wide over = rest - room;

            if (over <= std::min(counts_[i], most_)) {
                elapsed = (over * window_ms_ + counts_[i] - 1) / counts_[i];
                break;
            }

            rest -= counts_[i];
        }

        uint64_t then = begins() + i * window_ms_ + static_cast<uint64_t>(elapsed);

        return std::min((then + parts_ - 1) / parts_, ends_ms_) - now_ms_;
    }

private:
    /* Reads the values of a key that owes.  If units were admitted nevertheless,
     * under a higher limit, all were written as used in the present part. */
    void read_owed(const Policy &policy, uint64_t limit, const Owed &owed, uint64_t spent) {
        parts_ = spent > 0 ? counter_parts_of(policy, limit) : owed.parts;
        std::fill_n(counts_, parts_, 0);

        if (spent > 0) {
            newest_ = now_ms_ * parts_ / window_ms_;
            counts_[parts_] = static_cast<uint64_t>(owed.used(now_ms_));
        } else {
            owed_ = owed;
            counts_[parts_ > 1] = owed.each;
            counts_[parts_] = owed.last;
        }
    }

    /* Takes the oldest requests out, of which there is no more room for so many as
     * the newest. */
    void keep_newest(uint64_t limit, uint64_t newest) {
        uint64_t all_now = static_cast<uint64_t>(all());
        uint64_t over = all_now - std::min(all_now, std::max(limit, all_now - newest));

        for (uint64_t i = 0; over > 0; i++) {
            uint64_t less = std::min(counts_[i], over);

            counts_[i] -= less;
            over -= less;
        }
    }

    uint64_t begins() const { return newest_ * window_ms_; }

    Wide all() const { return std::accumulate(counts_, counts_ + parts_ + 1, Wide{0}); }

    /* The state had fewer parts than its limit asks for.  With what has been
     * added it was written, without counts that are over: the next request may
     * find room for it in more parts. */
    void fit(uint64_t limit) {
        for (const CounterKind &kind : kCounterKinds) {
            if (kind.limit_max < limit) { continue; }

            if (kind.parts <= parts_ || newest_ < parts_ || convert(kind)) { return; }
        }
    }

    /* Returns the part, of so many, that has the last moment of this one. */
    uint64_t moved(uint64_t part, uint64_t parts) const {
        return ((part + 1) * parts + parts_ - 1) / parts_ - 1;
    }

    /* Makes them as many parts as this kind has; false if it has no room, which is
     * for its largest limit in each part, or, with more than 7 parts, in all. */
    bool convert(const CounterKind &kind) {
        uint64_t counts[kPartsMax + 1] = {};
        uint64_t newest = moved(newest_, kind.parts);

        for (uint64_t i = 0; i <= parts_; i++) {
            counts[moved(newest_ - parts_ + i, kind.parts) - newest + kind.parts] += counts_[i];
        }

        uint64_t most = kind.parts > 7
                            ? std::accumulate(counts, counts + kind.parts + 1, uint64_t{0})
                            : *std::max_element(counts, counts + kind.parts + 1);

        if (most > kind.limit_max) { return false; }

        ends_ms_ = ((newest_ + 1 + parts_) * window_ms_ + parts_ - 1) / parts_;

        parts_ = kind.parts;
        newest_ = newest;
        std::copy(std::begin(counts), std::end(counts), counts_);

        return true;
    }

    uint64_t window_ms_;
    uint64_t now_ms_;
    uint64_t parts_ = 1;
    uint64_t newest_;
    Owed owed_ = {1, 0, 0, 0, 0, Calendar::kNone, nullptr};
    uint64_t most_ = UINT64_MAX;
    uint64_t ends_ms_ = UINT64_MAX;
    uint64_t counts_[kPartsMax + 1];
};

} // namespace limit_sliding
