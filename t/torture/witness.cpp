/* Copyright (C) the limit_sliding authors */

#include "witness.hpp"

#include <algorithm>

#include "report.hpp"

namespace torture {

namespace {

/* A bucket that is filled and runs off, by requests in any order. */
class Level {
public:
    /* Of what is known to hold no more than its capacity, if it is capped. */
    Level(const Policy &policy, uint32_t limit, bool is_capped)
        : limit_(limit), full_(full(policy, limit)), is_capped_(is_capped) {}

    /*
     * Not above the truth for one that began before others did which are in
     * already: meanwhile the bucket may have been empty.
     */
    void add(uint64_t at_ms, Shares more) {
        if (at_ms < now_ms_) {
            more -= static_cast<Shares>(limit_) * (now_ms_ - at_ms);
            level_ += std::max(more, static_cast<Shares>(0));
            return;
        }

        level_ = at(at_ms) + more;
        now_ms_ = at_ms;

        if (is_capped_) { level_ = std::min(level_, full_); }
    }

    Shares at(uint64_t now_ms) const {
        Shares gone = static_cast<Shares>(limit_) * (std::max(now_ms, now_ms_) - now_ms_);

        return std::max(level_ - gone, static_cast<Shares>(0));
    }

private:
    uint32_t limit_;
    Shares full_;
    bool is_capped_;
    uint64_t now_ms_ = 0;
    Shares level_ = 0;
};

unsigned long long milli(const Policy &policy, Shares shares) {
    return static_cast<unsigned long long>(shares * 1000 / policy.window_ms);
}

} // namespace

void Witness::sort() {
    std::sort(admitted_.begin(), admitted_.end(),
              [](const Span &a, const Span &b) { return a.after_ms < b.after_ms; });
    std::sort(rejected_.begin(), rejected_.end(),
              [](const Span &a, const Span &b) { return a.before_ms < b.before_ms; });

    for (const Span &s : admitted_) {
        longest_ms_ = std::max(longest_ms_, s.after_ms - s.before_ms);
    }
}

Shares Witness::weighed(const Span &span, uint64_t at_ms, uint64_t now_ms) const {
    return static_cast<Shares>(span.cost) * weight(policy_, 0, std::min(at_ms, now_ms), 0, now_ms);
}

/* ---- never over ---- */

Shares Witness::least_used(uint64_t now_ms) const {
    Shares used = 0;
    Level level(policy_, limit_, false);

    for (const Span &s : admitted_) {
        if (s.is_sure && s.after_ms <= now_ms) {
            level.add(s.before_ms, shares(s));
            used += is_bucket(policy_) ? 0 : weighed(s, s.before_ms, now_ms);
        }
    }

    return is_bucket(policy_) ? level.at(now_ms) : used;
}

std::string Witness::check_windows() const {
    size_t first = 0; /* of those that may count still */

    for (size_t i = 0; i < admitted_.size(); i++) {
        uint64_t now_ms = admitted_[i].after_ms;
        Shares used = 0;

        if (i + 1 < admitted_.size() && admitted_[i + 1].after_ms == now_ms) { continue; }

        while (weighed(admitted_[first], admitted_[first].after_ms, now_ms) == 0) {
            first++;
        }

        for (size_t j = first; j <= i; j++) {
            const Span &s = admitted_[j];

            used += s.is_sure ? weighed(s, s.before_ms, now_ms) : 0;
        }

        if (used > full(policy_, limit_)) {
            return text("at %llu ms %llu/1000 are used, limit %u, window "
                        "%llu ms",
                        static_cast<unsigned long long>(now_ms), milli(policy_, used), limit_,
                        static_cast<unsigned long long>(policy_.window_ms));
        }
    }

    return "";
}

std::string Witness::check_bucket() const {
    Level level(policy_, limit_, false);

    for (const Span &s : admitted_) {
        if (!s.is_sure) { continue; }

        level.add(s.before_ms, shares(s));

        if (level.at(s.after_ms) > full(policy_, limit_)) {
            return text("at %llu ms %llu/1000 are used, capacity %llu, window "
                        "%llu ms",
                        static_cast<unsigned long long>(s.after_ms),
                        milli(policy_, level.at(s.after_ms)),
                        static_cast<unsigned long long>(capacity(policy_, limit_)),
                        static_cast<unsigned long long>(policy_.window_ms));
        }
    }

    return "";
}

std::string Witness::check_never_over() const {
    return is_bucket(policy_) ? check_bucket() : check_windows();
}

/* ---- never rejected with room ---- */

/* Admissions that ended after a rejection began, and began before its end. */
Shares Witness::still_deciding(const Span &rejection, size_t first) const {
    Shares sum = 0;

    for (size_t j = first; j < admitted_.size(); j++) {
        const Span &s = admitted_[j];

        if (s.after_ms > rejection.after_ms + longest_ms_) { break; }

        if (s.before_ms <= rejection.after_ms) { sum += shares(s); }
    }

    return sum;
}

Shares Witness::most_used(uint64_t now_ms) const {
    Shares used = 0;
    Level level(policy_, limit_, true);

    for (const Span &s : admitted_) {
        level.add(std::min(s.after_ms, now_ms), shares(s));
        used += is_bucket(policy_) ? 0 : weighed(s, s.after_ms, now_ms);
    }

    return is_bucket(policy_) ? level.at(now_ms) : used;
}

std::string Witness::check_rejections() const {
    Level level(policy_, limit_, true);
    size_t first = 0;
    size_t ended = 0; /* before the rejection began */

    for (const Span &r : rejected_) {
        Shares used = 0;

        while (ended < admitted_.size() && admitted_[ended].after_ms <= r.before_ms) {
            level.add(admitted_[ended].after_ms, shares(admitted_[ended]));
            ended++;
        }

        if (is_bucket(policy_)) {
            used = level.at(r.before_ms);
        } else {
            while (first < ended
                   && weighed(admitted_[first], admitted_[first].after_ms, r.before_ms) == 0) {
                first++;
            }

            for (size_t j = first; j < ended; j++) {
                used += weighed(admitted_[j], admitted_[j].after_ms, r.before_ms);
            }
        }

        used += still_deciding(r, ended);

        if (used + shares(r) <= full(policy_, limit_)) {
            return text("at %llu..%llu ms a request of cost %llu is rejected, "
                        "with at most %llu/1000 used of %llu, window %llu ms",
                        static_cast<unsigned long long>(r.before_ms),
                        static_cast<unsigned long long>(r.after_ms),
                        static_cast<unsigned long long>(r.cost), milli(policy_, used),
                        static_cast<unsigned long long>(capacity(policy_, limit_)),
                        static_cast<unsigned long long>(policy_.window_ms));
        }
    }

    return "";
}

} // namespace torture
