/* Copyright (C) the limit_sliding authors */

/*
 * A simulation of all that asks Redis: the client's own code over a network, servers and
 * a clock of which everything follows from a seed.
 *
 * Usage: sim [FIRST [COUNT]]; TRACE=1 writes what happens.
 */

#include <cstdio>
#include <cstdlib>

#include "core/limiter/limiter.hpp"
#include "holds.hpp"
#include "scenario.hpp"
#include "world.hpp"

int main(int argc, char **argv) {
    const uint64_t first = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
    const uint64_t n = argc > 2 ? strtoull(argv[2], nullptr, 10) : 1;
    uint64_t failed = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        const sim::Outcome outcome = sim::run_seed(seed);
        failed += outcome.is_broken;

        const bool has_holds = seed % 4 == 0;
        const sim::Outcome holds = has_holds ? sim::run_hold_seed(seed) : sim::Outcome{};
        failed += holds.is_broken;

        /* a seed says nothing unless it is the same each time */
        if (seed % 64 == 0
            && (sim::run_seed(seed).hash != outcome.hash
                || sim::run_hold_seed(seed).hash != holds.hash)) {
            printf("seed %llu: differs from itself\n", static_cast<unsigned long long>(seed));
            failed++;
        }

        if (failed >= 20) { break; }
    }

    if (getenv("COUNTS") != nullptr) { sim::print_counts(); }

    printf("%llu seeds, %llu failed\n", static_cast<unsigned long long>(n),
           static_cast<unsigned long long>(failed));
    return failed == 0 ? 0 : 1;
}
