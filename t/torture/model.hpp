/* Copyright (C) the limit_sliding authors */

/*
 * What one key may do under one policy, plainly by docs/algorithms.md: a list
 * of what was admitted and when, each weighed by its age whenever somebody
 * asks.  It shares no code with the core, nor with the model of t/unit.
 *
 * What is used is counted in shares: a request has as many shares as its
 * window has milliseconds, so that all five algorithms are exact in integers.
 */

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/limiter/limiter.hpp"

using namespace limit_sliding;

namespace torture {

__extension__ typedef __int128 Shares;

using Policy = Policy;

constexpr bool is_bucket(const Policy &policy) {
    return policy.algorithm == Algorithm::kTokenBucket
           || policy.algorithm == Algorithm::kLeakyBucket;
}

/* The most requests that may be used at once. */
uint64_t capacity(const Policy &policy, uint32_t limit);

inline Shares full(const Policy &policy, uint32_t limit) {
    return static_cast<Shares>(capacity(policy, limit)) * policy.window_ms;
}

/* Is a full bucket too large to be kept to a share? */
bool is_coarse(const Policy &policy, uint32_t limit);

/*
 * How many shares of a request still count, of those algorithms that are no
 * buckets: it was admitted at `at_ms`, and the key's own time, that of its
 * latest request, is `own_ms`.  It never grows with `now_ms`.
 */
uint64_t weight(const Policy &policy, uint64_t offset_ms, uint64_t at_ms, uint64_t own_ms,
                uint64_t now_ms);

/*
 * The documentation lets a bucket round up what it records, lets units of a
 * log that were given back count once more in the last 64th of their window,
 * and leaves some freedom when limits change and after a bucket's refund.
 * `least` is the truth, which nothing may be admitted against.  `most` is the
 * most that may be taken for it.  For all else both are the same.
 */
enum class Side { least, most };

class Model {
public:
    explicit Model(const Policy &policy, uint64_t offset_ms = 0)
        : policy_(policy), offset_ms_(offset_ms) {}

    Shares used(uint64_t now_ms, uint32_t limit, Side side) const;

    /* Would a request of this cost be admitted? */
    bool fits(uint64_t now_ms, uint32_t limit, uint32_t cost, Side side) const;

    /* Whole requests that are left. */
    uint64_t left(uint64_t now_ms, uint32_t limit, Side side) const;

    /*
     * LEAKY_BUCKET: how long a request that fits has to wait; to be asked
     * before it is recorded.
     */
    uint64_t delay_ms(uint64_t now_ms, uint32_t limit, uint32_t cost, Side side) const;

    /* Notes an admission, and returns what refund() takes. */
    size_t record(uint64_t now_ms, uint32_t limit, uint32_t cost);

    /*
     * Takes an admission back, once, as if it had never been.  Precondition:
     * the key's limit never changed and no clock stepped back.
     */
    void refund(size_t admission, uint32_t cost);

    /*
     * A bucket's state is written anew, and so may be rounded once more: twice
     * if so much was recorded, and taken back at once.
     */
    void rewrite(uint64_t now_ms, uint32_t cost = 0);

    void forget();

    const Policy &policy() const { return policy_; }
    uint64_t own_ms() const { return own_ms_; }

private:
    struct Event {
        uint64_t at_ms;
        uint64_t cost;
        uint64_t given_back; /* of it, which may count once more in a log */
        uint64_t kept;       /* given back, but beyond what is noted of that */
    };

    struct Level {
        uint64_t at_ms;
        Shares used; /* at that time */
    };

    /* What a bucket has used. */
    struct Levels {
        Level least;
        Level most;
        uint32_t limit; /* of the latest admission; 0: there was none */
        Shares step;    /* to which it is rounded up */
        Shares cut;     /* of the latest step, which may be added later */
    };

    struct Pour {
        uint64_t at_ms;
        uint32_t limit;
        uint32_t cost;
        bool is_taken_back;
        Levels after;
    };

    static bool is_certain(const Levels &levels);
    static void add_case(std::vector<Levels> *cases, const Levels &added);
    Shares at_clock(const Levels &levels, uint64_t now_ms, Side side) const;
    Shares seen(const Levels &levels, uint64_t now_ms, uint32_t limit, Side side) const;
    Shares left_of(const Levels &levels, uint64_t now_ms, uint32_t limit, Side side) const;
    Shares set_aside(const Levels &levels, uint64_t now_ms, uint32_t limit, Side side) const;
    Level backdated(Level level, uint32_t limit, Shares aside) const;
    void round_up(Levels *levels, bool may_again) const;
    bool begins_anew(uint64_t former_ms, uint64_t at_ms) const;
    Levels poured(const Levels &levels, uint64_t now_ms, uint32_t limit, uint32_t cost,
                  bool is_backdated) const;
    Shares bucket_used(uint64_t now_ms, uint32_t limit, Side side) const;
    size_t pour(uint64_t now_ms, uint32_t limit, uint32_t cost);
    void take_back(size_t admission);
    Shares replay() const;
    Shares sum(uint64_t now_ms, Side side) const;
    void give_back(size_t admission, uint32_t cost);
    bool is_late(const Event &event, uint64_t now_ms) const;
    void drop_old();

    Policy policy_;
    uint64_t offset_ms_;
    uint64_t own_ms_ = 0;
    std::deque<Event> events_;            /* in order of time; of one ms only one */
    std::vector<Levels> cases_{Levels{}}; /* one unless limits change */
    std::vector<Pour> pours_;
    bool is_loose_ = false; /* may have given back what had run off */
};

/*
 * What is wrong with the times that a key is told of, NULL if nothing is: by
 * definition `remaining` grows at the reset and not a millisecond before, and
 * the same request is admitted at the retry time and not before.
 */
const char *reset_fault(const Model &model, uint64_t now_ms, const Verdict &verdict);
const char *retry_fault(const Model &model, uint64_t now_ms, bool is_admitted, uint32_t cost,
                        const Verdict &verdict);

} // namespace torture
