/* Copyright (C) the limit_sliding authors */

/* The bytes that a fuzzer was given, as numbers and texts, and what must hold. */

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

/* libFuzzer's, and replay.cpp's, name of a target. */
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process with what did not hold. */
#define CHECK(holds)                                                                               \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #holds);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

namespace fuzz {

/* Zeros follow the last byte. */
class Input {
public:
    Input(const uint8_t *data, size_t size) : next_(data), end_(data + size) {}

    bool empty() const { return next_ == end_; }
    uint8_t byte() { return empty() ? 0 : *next_++; }
    bool flag() { return (byte() & 1) != 0; }

    /* Returns 0 .. n - 1. */
    uint64_t below(uint64_t n) {
        uint64_t number = 0;
        for (uint64_t most = n - 1; most != 0; most >>= 8) {
            number = number << 8 | byte();
        }

        return number % n;
    }

    /* Returns any number of 64 bits: small ones, those beside a power of two, or any. */
    uint64_t number() {
        const uint8_t kind = byte();
        if (kind < 128) { return kind; }

        if (kind < 192) { return (uint64_t{1} << (kind & 63)) + byte() - 128; }

        uint64_t number = 0;
        for (unsigned i = 0; i <= (kind & 7u); i++) {
            number = number << 8 | byte();
        }

        return (kind & 32) != 0 ? ~number + 1 : number;
    }

    /* Returns the next bytes, as many as there are. */
    std::string_view take(size_t n) {
        n = std::min(n, static_cast<size_t>(end_ - next_));
        const std::string_view text(reinterpret_cast<const char *>(next_), n);
        next_ += n;
        return text;
    }

    /* Returns a text of up to 255 bytes, or all that is left. */
    std::string_view text() {
        const size_t n = byte();
        return take(n);
    }

    std::string_view rest() { return take(SIZE_MAX); }

private:
    const uint8_t *next_;
    const uint8_t *end_;
};

} // namespace fuzz
