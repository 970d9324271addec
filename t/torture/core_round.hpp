/* Copyright (C) the limit_sliding authors */

/*
 * A random history through limiter.hpp beside the model, in one process: every
 * decision and all that is told of it has to be what the model says.
 *
 * A round has up to three zones, whose limits a request takes all or nothing.
 * A zone is roomy, so that nothing may be forgotten, or crowded: then a key
 * that lost its state to another begins anew, but no request is ever rejected
 * that its key's whole history leaves room for.
 */

#pragma once

#include <memory>
#include <vector>

#include "core_zone.hpp"
#include "draw.hpp"
#include "model.hpp"
#include "report.hpp"

namespace torture {

constexpr size_t kZones = 3;
constexpr uint64_t kBackMs = 20; /* how far workers' clocks may differ */
/* limit_sliding::release() takes back no later. */
constexpr uint64_t kRefundMs = 2 * 3600 * 1000;
constexpr uint64_t kRefundWindows = 127;
constexpr size_t kRemembered = 8;  /* requests that may be taken back */
constexpr double kRounding = 1e-9; /* of a comparison of shares */

inline uint64_t counted_steps;
inline bool is_traced; /* TRACE=1 in the environment prints every request */

/* One limit of a request. */
struct Part {
    ModelledZone *zone;
    Key *key;
    size_t number; /* of the key */
    size_t admission;
    unsigned lives;
};

struct Request {
    uint64_t at_ms;
    std::vector<Part> parts;
    std::vector<Claim> claims;
};

class Round {
public:
    Round(Report *report, uint64_t seed) : Round(report, seed, Draw(seed)) {}

    /* The seed is for the report alone. */
    Round(Report *report, uint64_t seed, const Draw &draw)
        : report_(report), seed_(seed), draw_(draw), style_(draw_style(&draw_)) {
        for (size_t n = 1 + draw_.below(kZones); n > 0; n--) {
            zones_.push_back(std::make_unique<ModelledZone>(&draw_, style_));
        }

        high_ms_ = 1000 + (draw_.next() >> (24 + draw_.below(40)));
    }

    void run() {
        unsigned steps = 200 + static_cast<unsigned>(draw_.below(1800));

        for (step_ = 0; step_ < steps && !has_failed_ && !draw_.is_over(); step_++) {
            counted_steps++;
            step();
        }
    }

private:
    /* ---- what happens ---- */

    void step() {
        const ModelledZone &first = *zones_[0];

        high_ms_ += style_.is_dense && !draw_.one_in(64)
                        ? draw_.below(4)
                        : draw_.gap_ms(first.policy(), zones_[0]->key(0).limit, high_ms_);
        now_ms_ = high_ms_;

        for (const auto &zone : zones_) {
            zone->sweep(high_ms_);
        }

        if (style_.goes_back && draw_.one_in(4)) { now_ms_ -= draw_.below(kBackMs); }

        if (style_.refunds && !past_.empty() && draw_.one_in(5)) {
            take_back();
        } else if (draw_.one_in(300)) {
            forget();
        } else {
            request();
        }
    }

    uint32_t draw_limit(uint32_t usual) {
        if (!style_.varies || !draw_.one_in(3)) { return usual; }

        return draw_.one_in(2) ? 1 + static_cast<uint32_t>(draw_.below(usual)) : draw_.limit();
    }

    Request draw_request() {
        Request r = {now_ms_, {}, {}};
        size_t first = draw_.below(zones_.size());
        size_t n = 1 + draw_.below(zones_.size());

        for (size_t i = 0; i < n; i++) {
            ModelledZone *zone = zones_[(first + i) % zones_.size()].get();
            size_t number = draw_.below(zone->keys());
            Key *key = &zone->key(number);
            uint32_t limit = draw_limit(key->limit);
            uint32_t cost = draw_.cost(capacity(zone->policy(), limit));

            r.parts.push_back({zone, key, number, 0, key->lives});
            r.claims.push_back(zone->claim(number, limit, cost));
            r.claims.back().purpose = draw_.one_in(16) ? Purpose::kLook : Purpose::kConsume;
        }

        return r;
    }

    void request() {
        Request r = draw_request();
        size_t n = r.claims.size();
        size_t told;

        for (size_t i = 0; i < n; i++) {
            /* what a caller has there does not matter */
            r.claims[i].state = draw_.next();
        }

        told = limit_sliding::acquire(r.claims.data(), n, now_ms_);

        if (told >= n) {
            deviates(r, 0, "the index of no claim");
            return;
        }

        trace("asks", r);

        bool is_admitted = r.claims[told].outcome == Outcome::kAdmitted;

        check_decisions(r, is_admitted);

        if (!has_failed_ && is_admitted) {
            record(&r);
            check_tightest(r, told);
        } else if (r.claims[told].outcome == Outcome::kRefused) {
            /* others were recorded, and taken back */
            for (size_t i = 0; i < n; i++) {
                r.parts[i].key->model.rewrite(now_ms_, r.claims[i].cost);
            }
        }

        for (size_t i = 0; i < n && !has_failed_; i++) {
            check_verdict(r, i, is_admitted);
        }

        if (!has_failed_ && !is_admitted) { check_longest(r, told); }

        for (size_t i = 0; i < n && !has_failed_; i++) {
            check_evictions(r, i);
        }
    }

    /* For a replay. */
    void trace(const char *what, const Request &r) {
        for (size_t i = 0; is_traced && i < r.claims.size(); i++) {
            const Claim &c = r.claims[i];

            printf("step %u, at %llu ms: %s: %s %p, key %zu, limit %llu, cost "
                   "%llu%s: outcome %d\n",
                   step_, static_cast<unsigned long long>(now_ms_), what,
                   name_of(c.policy->algorithm), static_cast<void *>(r.parts[i].key),
                   r.parts[i].number, static_cast<unsigned long long>(c.limit),
                   static_cast<unsigned long long>(c.cost),
                   c.purpose == Purpose::kLook ? ", look" : "", static_cast<int>(c.outcome));
        }
    }

    void record(Request *r) {
        for (size_t i = 0; i < r->claims.size(); i++) {
            const Claim &c = r->claims[i];

            if (c.purpose == Purpose::kConsume && c.cost > 0) {
                Part &p = r->parts[i];

                delays_[i][0] = p.key->model.delay_ms(now_ms_, c.limit, c.cost, Side::least);
                delays_[i][1] = p.key->model.delay_ms(now_ms_, c.limit, c.cost, Side::most);
                p.admission = p.key->model.record(now_ms_, c.limit, c.cost);
            }
        }

        if (style_.refunds) { past_.push_back(*r); }

        if (past_.size() > kRemembered) { past_.erase(past_.begin()); }
    }

    void take_back() {
        size_t i = draw_.one_in(2) ? past_.size() - 1 : draw_.below(past_.size());
        Request r = past_[i];

        past_.erase(past_.begin() + static_cast<long>(i));

        for (const Part &p : r.parts) {
            uint64_t windows_ms = kRefundWindows * p.key->model.policy().window_ms;

            /* nobody takes back what was forgotten, nor after hours */
            if (p.lives != p.key->lives || now_ms_ - r.at_ms > std::min(kRefundMs, windows_ms)) {
                return;
            }
        }

        trace("takes back", r);
        std::vector<Claim> released = r.claims;
        limit_sliding::release(released.data(), released.size(), now_ms_);

        for (size_t j = 0; j < r.parts.size(); j++) {
            const Claim &c = r.claims[j];

            if (c.purpose == Purpose::kConsume && c.cost > 0) {
                r.parts[j].key->model.refund(r.parts[j].admission, c.cost);
            } else if (c.purpose == Purpose::kConsume) {
                r.parts[j].key->model.rewrite(now_ms_);
            }
        }

        for (size_t j = 0; j < r.parts.size() && !has_failed_; j++) {
            const Part &p = r.parts[j];
            uint64_t left = p.zone->left(p.number, now_ms_);
            const Model &model = p.key->model;

            if (left > model.left(now_ms_, p.key->limit, Side::least)) {
                deviates(r, j, "a refund gives back more than was taken");
            } else if (left < model.left(now_ms_, p.key->limit, Side::most)) {
                deviates(r, j, "a refund gives back less than was taken");
            }
        }
    }

    void forget() {
        ModelledZone *zone = zones_[draw_.below(zones_.size())].get();
        size_t number = draw_.below(zone->keys());
        Key *key = &zone->key(number);
        Claim claim = zone->claim(number, key->limit, 1);

        claim.forget(now_ms_);
        key->model.forget();
        key->lives++;
    }

    /* ---- what must hold ---- */

    bool fits(const Request &r, size_t i, uint64_t now_ms, Side side) const {
        const Claim &c = r.claims[i];

        return r.parts[i].key->model.fits(now_ms, c.limit, c.cost, side);
    }

    bool all_fit(const Request &r, uint64_t now_ms, Side side) const {
        for (size_t i = 0; i < r.claims.size(); i++) {
            if (!fits(r, i, now_ms, side)) { return false; }
        }

        return true;
    }

    static bool is_any_refused(const Request &r) {
        for (const Claim &c : r.claims) {
            if (c.outcome == Outcome::kRefused) { return true; }
        }

        return false;
    }

    static bool is_any_bounded(const Request &r) {
        for (const Part &p : r.parts) {
            if (p.zone->is_bounded()) { return true; }
        }

        return false;
    }

    /* A state may be evicted by the very request that is decided. */
    static bool has_evicted(const Request &r, size_t i) {
        const ModelledZone &zone = *r.parts[i].zone;

        return zone.is_bounded() || (has_rings(zone.policy()) && zone.stats().evicted > 0);
    }

    void check_decisions(const Request &r, bool is_admitted) {
        for (size_t i = 0; i < r.claims.size() && !has_failed_; i++) {
            const Claim &c = r.claims[i];

            if (c.outcome == Outcome::kRefused) {
                check_refusal(r, i);
            } else if (c.outcome == Outcome::kAdmitted) {
                if (!fits(r, i, now_ms_, Side::least) && !has_evicted(r, i)) {
                    deviates(r, i, "admitted without room");
                }
            } else if (is_admitted) {
                deviates(r, i,
                         "a limit that rejects, of a request that is "
                         "admitted");
            } else if (fits(r, i, now_ms_, Side::most)) {
                deviates(r, i,
                         r.parts[i].zone->is_bounded() ? "rejected with room, in a full zone"
                                                       : "rejected with room");
            }
        }
    }

    void check_refusal(const Request &r, size_t i) {
        const ModelledZone &zone = *r.parts[i].zone;

        if (zone.policy().full != WhenFull::kDeny) {
            deviates(r, i, "refused, with full=evict");
        } else if (zone.stats().used < zone.slots()) {
            deviates(r, i, "refused, in a zone that is not full");
        } else if (!has_rings(zone.policy())
                   && r.parts[i].key->model.left(now_ms_, r.claims[i].limit, Side::most)
                          < capacity(zone.policy(), r.claims[i].limit)) {
            deviates(r, i, "a known key is refused");
        }
    }

    double share(const Request &r, size_t i, Side side) const {
        const Claim &c = r.claims[i];

        return static_cast<double>(r.parts[i].key->model.used(now_ms_, c.limit, side))
               / static_cast<double>(full(*c.policy, c.limit));
    }

    void check_tightest(const Request &r, size_t told) {
        for (size_t i = 0; i < r.claims.size(); i++) {
            if (!has_evicted(r, i) && !has_evicted(r, told)
                && share(r, told, Side::most) * (1 + kRounding) + kRounding
                       < share(r, i, Side::least)) {
                deviates(r, told, "not the tightest limit describes");
                return;
            }
        }
    }

    void check_longest(const Request &r, size_t told) {
        Verdict v;

        v = r.claims[told].describe(now_ms_);

        if (v.retry_after_ms == kNever || is_any_bounded(r) || is_any_refused(r)) { return; }

        if (!all_fit(r, now_ms_ + v.retry_after_ms, Side::least)) {
            deviates(r, told, "the request is not admitted after its wait");
        } else if (all_fit(r, now_ms_ + v.retry_after_ms - 1, Side::most)) {
            deviates(r, told, "the request is admitted before its wait");
        }
    }

    void check_verdict(const Request &r, size_t i, bool is_admitted) {
        const Claim &c = r.claims[i];
        const Model &model = r.parts[i].key->model;
        Verdict v;

        if (c.outcome == Outcome::kRefused) { return; }

        v = c.describe(now_ms_);

        if (v.limit != c.limit) {
            deviates(r, i, "another limit is told");
        } else if (v.remaining < model.left(now_ms_, c.limit, Side::most)) {
            deviates(r, i,
                     is_any_refused(r) ? "told as consumed, of a request that another "
                                         "limit refused"
                                       : "too little remains");
        } else if (has_evicted(r, i)) {
            return;
        } else if (v.remaining > model.left(now_ms_, c.limit, Side::least)) {
            deviates(r, i, "too much remains");
        } else {
            check_times(r, i, v);
        }

        if (is_admitted && c.purpose == Purpose::kConsume && c.cost > 0) { check_delay(r, i, v); }
    }

    void check_times(const Request &r, size_t i, const Verdict &v) {
        const Claim &c = r.claims[i];
        const Model &model = r.parts[i].key->model;
        bool is_admitted = c.outcome == Outcome::kAdmitted;
        const char *fault = reset_fault(model, now_ms_, v);

        if (fault == nullptr) { fault = retry_fault(model, now_ms_, is_admitted, c.cost, v); }

        if (fault != nullptr) {
            deviates(r, i, fault);
        } else if (!is_admitted && v.retry_after_ms != kNever && draw_.one_in(8)) {
            check_by_looks(r, i, now_ms_ + v.retry_after_ms);
        }
    }

    /* The same by the core alone, without any tolerance. */
    void check_by_looks(const Request &r, size_t i, uint64_t at_ms) {
        Claim look = r.claims[i];

        look.purpose = Purpose::kLook;
        limit_sliding::acquire(&look, 1, at_ms - 1);

        if (look.outcome != Outcome::kRejected) {
            deviates(r, i, "a look finds room before the wait");
            return;
        }

        limit_sliding::acquire(&look, 1, at_ms);

        if (look.outcome != Outcome::kAdmitted) {
            deviates(r, i, "a look finds no room after the wait");
        }
    }

    void check_delay(const Request &r, size_t i, const Verdict &v) {
        if (r.claims[i].policy->algorithm != Algorithm::kLeakyBucket) {
            if (v.delay_ms != 0) { deviates(r, i, "a delay without a queue"); }
        } else if (v.delay_ms < delays_[i][0] || v.delay_ms > delays_[i][1]) {
            deviates(r, i, text("a delay other than the queue takes"));
        } else if (v.delay_ms != r.claims[i].delay_ms(now_ms_)) {
            deviates(r, i, "two different delays");
        }
    }

    void check_evictions(const Request &r, size_t i) {
        ModelledZone *zone = r.parts[i].zone;

        if (!style_.is_crowded && zone->stats().evicted > 0) {
            deviates(r, i, "evictions in a roomy zone");
        } else if (style_.denies && zone->stats().evicted > 0) {
            deviates(r, i, "evictions in a zone with full=deny");
        } else if (!zone->follow_evictions(now_ms_)) {
            deviates(r, i, "more keys are forgotten than were evicted");
        }
    }

    std::string kind_of(const Policy &p, uint32_t limit) const {
        bool has_parts = has_rings(p) && p.algorithm == Algorithm::kCounter;
        bool is_large = is_bucket(p) && is_coarse(p, limit);

        return text("%s%s%s%s%s%s%s%s: ", name_of(p.algorithm), has_parts ? " precision=n" : "",
                    p.strict ? " strict" : "", is_large ? ", large" : "",
                    style_.varies ? ", limits change" : "",
                    style_.goes_back ? ", clock steps back" : "", style_.refunds ? ", refunds" : "",
                    style_.denies       ? ", full=deny"
                    : style_.is_crowded ? ", full zone"
                                        : "");
    }

    void deviates(const Request &r, size_t i, const std::string &what) {
        const Claim &c = r.claims[i];
        const Policy &p = *c.policy;
        const Model &model = r.parts[i].key->model;
        Verdict v;

        if (has_failed_) { return; }

        has_failed_ = true;
        v = c.describe(now_ms_);

        report_->deviates(
            kind_of(p, c.limit) + what,
            text("seed %llu, step %u, claim %zu of %zu at %llu ms: window "
                 "%llu ms, precision %u, burst %u, limit %llu, cost %llu%s, "
                 "outcome %d, remaining %llu, reset %llu, retry %llu, delay "
                 "%llu; model: room %d..%d, left %llu..%llu, own time %llu",
                 static_cast<unsigned long long>(seed_), step_, i, r.claims.size(),
                 static_cast<unsigned long long>(now_ms_),
                 static_cast<unsigned long long>(p.window_ms), p.precision, p.burst,
                 static_cast<unsigned long long>(c.limit), static_cast<unsigned long long>(c.cost),
                 c.purpose == Purpose::kLook ? ", look" : "", static_cast<int>(c.outcome),
                 static_cast<unsigned long long>(v.remaining),
                 static_cast<unsigned long long>(v.reset_ms),
                 static_cast<unsigned long long>(v.retry_after_ms),
                 static_cast<unsigned long long>(v.delay_ms), fits(r, i, now_ms_, Side::most),
                 fits(r, i, now_ms_, Side::least),
                 static_cast<unsigned long long>(model.left(now_ms_, c.limit, Side::most)),
                 static_cast<unsigned long long>(model.left(now_ms_, c.limit, Side::least)),
                 static_cast<unsigned long long>(model.own_ms())));
    }

    Report *report_;
    uint64_t seed_;
    Draw draw_;
    Style style_;
    std::vector<std::unique_ptr<ModelledZone>> zones_;
    std::vector<Request> past_;
    uint64_t delays_[kZones][2];
    uint64_t now_ms_ = 0;
    uint64_t high_ms_;
    unsigned step_ = 0;
    bool has_failed_ = false;
};

} // namespace torture
