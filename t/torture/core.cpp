/* Copyright (C) the limit_sliding authors */

/*
 * usage: core SECONDS [SEED]
 *
 * The core beside the model: random histories of random policies.
 */

#include "core_round.hpp"

namespace torture {

namespace {

int torture_core(int argc, char **argv) {
    Report report("core", argc, argv);

    is_traced = getenv("TRACE") != nullptr;

    while (report.has_time()) {
        Round(&report, report.next_seed()).run();
    }

    return report.finish(text("%llu steps", static_cast<unsigned long long>(counted_steps)));
}

} // namespace

} // namespace torture

int main(int argc, char **argv) { return torture::torture_core(argc, argv); }
