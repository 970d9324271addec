/* Copyright (C) the limit_sliding authors */

/* A zone of the core beside models of its keys, and what a round is like. */

#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "core/policy/override.hpp"
#include "draw.hpp"
#include "model.hpp"
#include "zone.hpp"

namespace torture {

constexpr uint64_t kSweepMs = 100ull * 86400000; /* Zone::sweep() is due within this time */

inline bool has_rings(const Policy &policy) {
    return policy.algorithm == Algorithm::kLog
           || (policy.algorithm == Algorithm::kCounter && policy.precision > 1);
}

/* What is the same for a round. */
struct Style {
    bool varies;    /* limits do, from request to request */
    bool goes_back; /* the clock does, by some ms */
    bool refunds;
    bool is_crowded;
    bool is_dense; /* a request every other ms */
    bool denies;   /* a full zone refuses new keys */
};

inline Style draw_style(Draw *draw) {
    Style style = {};

    style.is_crowded = draw->one_in(5);
    style.denies = style.is_crowded && draw->one_in(4);
    style.is_dense = draw->one_in(6);
    style.goes_back = !style.is_crowded && draw->one_in(4);
    style.refunds = !style.is_crowded && !style.goes_back && draw->one_in(3);
    style.varies = !style.is_crowded && !style.refunds && draw->one_in(2);

    return style;
}

struct Key {
    Model model;
    uint32_t limit;
    unsigned lives; /* how often its history began anew */
};

/* A zone of the core, and a model of each key. */
class ModelledZone {
public:
    ModelledZone(Draw *draw, const Style &style)
        : policy_(draw_policy(draw, style)),
          offset_ms_(policy_.algorithm == Algorithm::kFixed ? draw->below(1ull << 41) : 0) {
        bytes_ = draw_bytes(draw, style);
        memory_.reset(zone_memory(bytes_));
        zone_ = zone_of(memory_.get(), bytes_, &policy_, offset_ms_);

        /* what is told to a refused key has to be known to the ms */
        if (!style.denies && draw->one_in(3)) {
            zone_->window = {draw->window_ms(), Calendar::kNone};
            policy_ = with_window(shared(), policy_.window());
        }

        size_t keys = style.is_crowded  ? 6 + draw->below(30)
                      : style.goes_back ? 1
                                        : 1 + draw->below(4);

        for (size_t i = 0; i < keys; i++) {
            uint32_t limit
                = style.is_dense ? 10 + static_cast<uint32_t>(draw->below(100)) : draw->limit();

            keys_.push_back({Model(policy_, offset_ms_), limit, 0});
        }
    }

    const Policy &policy() const { return policy_; }
    Key &key(size_t i) { return keys_[i]; }
    size_t keys() const { return keys_.size(); }

    SlotCounts stats() const { return sum_of(&zone_->counts, 1); }
    uint64_t slots() const { return zone_->slot_count(); }

    Claim claim(size_t key, uint32_t limit, uint32_t cost) const {
        Claim claim = {};

        claim.zone = zone_;
        claim.policy = &policy_;
        claim.hash = zone_->hash({(const char *)&key, sizeof(key)}) ^ policy_.salt;
        claim.limit = limit;
        claim.cost = cost;

        return claim;
    }

    /* Whole requests left to a key, by a look. */
    uint64_t left(size_t key, uint64_t now_ms) const {
        Claim look = claim(key, keys_[key].limit, 0);
        Verdict verdict;

        look.purpose = Purpose::kLook;
        limit_sliding::acquire(&look, 1, now_ms);
        verdict = look.describe(now_ms);

        return verdict.remaining;
    }

    /*
     * Sweeps the zone as its caller must, but no more often.  Without that, the epoch of a tag
     * wraps, and an old state looks like one of a worker whose clock is ahead.
     */
    void sweep(uint64_t now_ms) {
        for (; now_ms - swept_ms_ >= kSweepMs; swept_ms_ += kSweepMs) {
            zone_->sweep(shared(), swept_ms_ + kSweepMs, 1, 0, bytes_);
        }
    }

    /* Of rings no model knows what is left once some were evicted. */
    bool is_bounded() const { return is_bounded_; }

    /*
     * After a request: a state that was evicted is one of a key that has
     * everything left.  Returns false if more keys have than were evicted.
     */
    bool follow_evictions(uint64_t now_ms) {
        uint64_t evicted = stats().evicted - evicted_;

        if (evicted == 0) { return true; }

        evicted_ += evicted;

        if (has_rings(policy_)) {
            is_bounded_ = true;
            return true;
        }

        for (size_t i = 0; i < keys_.size(); i++) {
            Key &k = keys_[i];
            uint64_t all = capacity(policy_, k.limit);

            if (k.model.left(now_ms, k.limit, Side::least) < all && left(i, now_ms) == all) {
                k.model.forget();

                if (evicted-- == 0) { return false; }
            }
        }

        return true;
    }

private:
    struct Free {
        void operator()(void *memory) const { free(memory); }
    };

    static Policy draw_policy(Draw *draw, const Style &style) {
        auto algorithm = static_cast<Algorithm>(draw->below(5));
        Policy policy
            = draw->policy(algorithm, style.is_dense ? 100 + draw->below(300) : draw->window_ms());

        policy.full = style.denies ? WhenFull::kDeny : WhenFull::kEvict;
        policy.strict = policy.precision > 1 && draw->one_in(2);

        return policy;
    }

    /* The smallest zones that there are, or some that hold all of a round. */
    uint64_t draw_bytes(Draw *draw, const Style &style) const {
        uint64_t line = kZoneAlign;
        uint64_t bytes = line;

        if (!style.is_crowded && has_rings(policy_)) { return 512 * 1024; }

        if (!style.is_crowded && draw->one_in(2)) { return 64 * 1024; }

        std::vector<uint8_t> secret(kSecretBytes, 1);
        std::unique_ptr<void, Free> memory(zone_memory(64 * line));

        do {
            bytes += line;
            memset(memory.get(), 0, bytes);
        } while (Zone::init(memory.get(), bytes, policy_, 0, secret.data()) == nullptr);

        /* of one place alone it is known whether it is full */
        return style.is_crowded && !style.denies ? bytes + draw->below(4) * line : bytes;
    }

    /* Returns the policy of keys that have the zone's window. */
    Policy shared() const { return zone_->shared_policy(policy_); }

    Policy policy_;
    uint64_t offset_ms_;
    uint64_t bytes_;
    std::unique_ptr<void, Free> memory_;
    Zone *zone_;
    std::vector<Key> keys_;
    uint64_t swept_ms_ = 0;
    uint64_t evicted_ = 0;
    bool is_bounded_ = false;
};

} // namespace torture
