/* Copyright (C) the limit_sliding authors */

#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>

#include "core/policy/describe_usage.hpp"
#include "core/policy/policy.hpp"
#include "core/rules/counter_kinds.hpp"

namespace limit_sliding {

/*
 * algorithm=counter with n parts of w/n ms, from the values of a reply: n, the number of the
 * newest part, the end of the state, and the requests in each of the n + 1 parts that the window
 * overlaps, the oldest first.  When e/n ms of the newest part have elapsed,
 *
 *     used = all - min(oldest x e/w, most)
 *
 * `most` is 0 if the counter is strict, floor(limit/n) if n follows from the limit and n > 1, and
 * else unbounded.  The newest part may begin in the future: e is 0 until then.  `spent` units,
 * and then `rejected` units as Counter::record_rejected() limits them, have been added to it
 * since.  A state that had another number of parts may end earlier than these parts.  As in
 * Counter, `used` is multiplied by w, which makes all of it exact.
 */
class CounterReply {
public:
    CounterReply(const Policy &policy, uint64_t limit, uint64_t now_ms, const int64_t *values,
                 uint64_t spent, uint64_t rejected)
        : window_ms_(policy.window_ms), now_ms_(now_ms), parts_(static_cast<uint64_t>(values[0])),
          newest_(static_cast<uint64_t>(values[1])) {
        std::copy_n(values + 3, parts_ + 1, counts_);
        uint64_t taken = spent + counts_[parts_];
        uint64_t recorded = std::min(rejected, limit - std::min(limit, taken));
        if (spent + recorded > 0) {
            counts_[parts_] += spent + recorded;
            if (policy.precision == 0 && parts_ > 7) { keep_newest(limit, recorded); }
            if (policy.precision == 0) { fit(limit); }
        } else if (values[2] > 0) {
            ends_ms_ = static_cast<uint64_t>(values[2]);
        }

        if (policy.strict) {
            most_ = 0;
        } else if (policy.precision == 0 && parts_ > 1) {
            most_ = limit / parts_;
        }
    }

    Wide used() const {
        uint64_t now = now_ms_ * parts_;
        uint64_t elapsed = std::min(now - std::min(now, begins()), window_ms_);
        Wide gone = std::min(Wide{counts_[0]} * elapsed, Wide{most_} * window_ms_);
        return all() * window_ms_ - gone;
    }

    /* Returns the ms until used <= room requests, if nothing is admitted. */
    uint64_t wait_ms(uint64_t room) const {
        if (used() <= Wide{room} * window_ms_) { return 0; }

        /* the wait ends while part i is the oldest one, when `elapsed` has elapsed */
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
    /* Removes as many of the oldest requests, `newest` at most, as exceed the limit. */
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

    /* Converts a state that had fewer parts than its limit asks for.  The script has written it
     * with the added units and without expired counts, so the next request may find room for them
     * in more parts, which end at the same times. */
    void fit(uint64_t limit) {
        for (const CounterKind &kind : kCounterKinds) {
            if (kind.limit_max < limit) { continue; }

            if (kind.parts <= parts_ || newest_ < parts_) { return; }
            if (kind.parts % parts_ == 0 && convert(kind)) { return; }
        }
    }

    /* Returns the number of the part, if there are `parts`, with the last moment of this part. */
    uint64_t moved(uint64_t part, uint64_t parts) const {
        return ((part + 1) * parts + parts_ - 1) / parts_ - 1;
    }

    /* Converts the counts to the parts of this kind.  Returns false if there is no room, which is
     * for the largest limit of the kind in each part or, with more than 7 parts, in all. */
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
    uint64_t parts_;
    uint64_t newest_;
    uint64_t most_ = UINT64_MAX;
    uint64_t ends_ms_ = UINT64_MAX;
    uint64_t counts_[kPartsMax + 1];
};

} // namespace limit_sliding
