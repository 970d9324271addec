/* Copyright (C) the limit_sliding authors */

/* Histories through the table, beside the model of each algorithm: requests for several
 * limits, refunds, deletions, steps of time and back, limits that change, evictions. */

#include "core_round.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static torture::Report report("table", 0, nullptr);
    torture::Round(&report, 0, torture::Draw(data, size)).run();
    CHECK(report.deviations() == 0);
    return 0;
}
