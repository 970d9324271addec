/* Copyright (C) the limit_sliding authors */

/* Connections in all their states: the simulation of t/sim, in which servers say what the
 * fuzzer wants in place of some of their replies, to whatever they were asked, in pieces
 * and at any time.  What holds for its seeds must hold: each waiter is answered once and
 * in time, nothing is left, and Redis decides again once it tells the truth. */

#include <string>

#include "../sim/scenario.hpp"
#include "../sim/server.hpp"
#include "input.hpp"

namespace {

constexpr size_t kNumbersMax = 40;

/* An array of numbers, as scripts reply. */
std::string numbers(fuzz::Input &input) {
    const size_t n = input.below(kNumbersMax);
    std::string bytes = "*" + std::to_string(n) + "\r\n";
    for (size_t i = 0; i < n; i++) {
        bytes += ":" + std::to_string(static_cast<int64_t>(input.number())) + "\r\n";
    }

    return bytes;
}

/* Puts another number in the place of one of an array. */
void change_number(fuzz::Input &input, std::string &bytes) {
    const size_t at = bytes.find(':', input.below(256));
    const size_t end = at != std::string::npos ? bytes.find("\r\n", at) : at;
    if (end == std::string::npos) { return; }

    bytes.replace(at + 1, end - at - 1, std::to_string(static_cast<int64_t>(input.number())));
}

/* Once there is no more input, servers tell the truth. */
void change(fuzz::Input &input, std::string &bytes) {
    switch (input.byte() >> 4) {
    case 10:
        bytes = input.text();
        break;
    case 11:
        bytes += input.text();
        break;
    case 12:
        bytes.resize(std::min<size_t>(bytes.size(), input.below(256)));
        break;
    case 13:
        bytes = numbers(input);
        break;
    case 14:
        change_number(input, bytes);
        break;
    case 15:
        bytes.insert(std::min<size_t>(bytes.size(), input.below(256)), input.text());
        break;
    default:
        break;
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const uint64_t seed = 1 + input.below(65536);
    sim::tamper = [&input](std::string &bytes) { change(input, bytes); };
    const sim::Outcome outcome = sim::run_seed(seed);
    sim::tamper = nullptr;
    CHECK(!outcome.is_broken);
    return 0;
}
