/* Copyright (C) the limit_sliding authors */

/*
 * What many processes did to one key, and whether its limit held.
 *
 * Nobody knows when exactly a request was decided, but its process read the
 * clock before the call and after it.  The core was told the first time, and
 * takes a key as of its latest request, so it records the request at some time
 * between the two.  Requests only ever weigh less as time passes.  Hence:
 *
 * - Never over: take all admissions that had ended at a time T.  The last one
 *   that was decided fitted in with all the others.  So at T, weighed as if
 *   each had been recorded when it began, they do not exceed the limit.
 *
 * - Never rejected with room: take all admissions that may have been decided
 *   before a rejection, those of killed processes too.  At the time when the
 *   rejected request began, weighed as if each had been recorded when it
 *   ended, they leave no room for it.  A lost count is seen by the first rule,
 *   one that was never made by this.
 *
 * Both hold for any order of events, so no deviation is a matter of chance.
 */

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model.hpp"

namespace torture {

/* A request, or many admitted in one millisecond. */
struct Span {
    uint64_t before_ms;
    uint64_t after_ms;
    uint64_t cost;
    bool is_sure; /* else its process was killed in the call */
};

class Witness {
public:
    Witness(const Policy &policy, uint32_t limit) : policy_(policy), limit_(limit) {}

    void admitted(const Span &span) { admitted_.push_back(span); }
    void rejected(const Span &span) { rejected_.push_back(span); }

    /* To be called once, before the others. */
    void sort();

    /*
     * In shares, at `now_ms`: not less than this was used, if no state was
     * lost, and not more than that.
     */
    Shares least_used(uint64_t now_ms) const;
    Shares most_used(uint64_t now_ms) const;

    /* Each returns what is wrong, or "". */
    std::string check_never_over() const;
    std::string check_rejections() const;

    size_t admissions() const { return admitted_.size(); }

private:
    std::string check_windows() const;
    std::string check_bucket() const;
    Shares shares(const Span &span) const {
        return static_cast<Shares>(span.cost) * policy_.window_ms;
    }
    Shares weighed(const Span &span, uint64_t at_ms, uint64_t now_ms) const;
    Shares still_deciding(const Span &rejection, size_t first) const;

    Policy policy_;
    uint32_t limit_;
    std::vector<Span> admitted_; /* in order of their ends */
    std::vector<Span> rejected_; /* in order of their beginnings */
    uint64_t longest_ms_ = 0;    /* span of those admitted */
};

} // namespace torture
