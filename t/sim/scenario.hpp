/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace sim {

struct Outcome {
    bool is_broken;
    uint64_t hash; /* of all that happened */
};

class Site;

/* What somebody else brings into the world of a seed.  Servers then are liars until all
 * faults are over. */
struct Guest {
    /* Adds what is to happen in this time. */
    std::function<void(Site &site, uint64_t length_us)> enter;

    /* Changes the bytes of a reply. */
    std::function<void(std::string &bytes)> tamper;

    /* All faults are over, and what was asked is answered. */
    std::function<void()> check;
};

/* That of the next seeds; nullptr: none. */
extern Guest *guest;

/* Runs a seed, and writes what does not hold. */
Outcome run_seed(uint64_t seed);

} // namespace sim
