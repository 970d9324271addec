/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

namespace limit_sliding {

/*
 * Counting bits without instructions that older processors lack, and without
 * the compiler's library.
 */
namespace bit_string {

constexpr uint64_t kBytes = 0x0101010101010101; /* one in each */
constexpr uint64_t kHigh = 0x80 * kBytes;

/* How many bits of each byte are set, in that byte. */
constexpr uint64_t byte_counts(uint64_t x)
{
    x -= x >> 1 & 0x55 * kBytes;
    x = (x & 0x33 * kBytes) + (x >> 2 & 0x33 * kBytes);

    return (x + (x >> 4)) & 0x0f * kBytes;
}

constexpr unsigned count(uint64_t x)
{
    return static_cast<unsigned>(byte_counts(x) * kBytes >> 56);
}

/* How many bytes are at most `most`, if all are below 128. */
constexpr unsigned bytes_up_to(uint64_t bytes, unsigned most)
{
    uint64_t is_up_to = ((most * kBytes | kHigh) - bytes) & kHigh;

    return static_cast<unsigned>((is_up_to >> 7) * kBytes >> 56);
}

/*
 * The position of the bit that has `before` set bits below it; there must be
 * one.
 */
constexpr unsigned position(uint64_t x, unsigned before)
{
    uint64_t up_to = byte_counts(x) * kBytes; /* in this byte and below */
    unsigned shift = 8 * bytes_up_to(up_to, before);

    before -= static_cast<unsigned>(up_to << 8 >> shift & 0xff);

    /* bit i of that byte alone in byte i, as 1 */
    uint64_t bits = (x >> shift & 0xff) * kBytes & 0x8040201008040201;
    uint64_t spread = (bits + 0x7f * kBytes) >> 7 & kBytes;

    return shift + bytes_up_to(spread * kBytes, before);
}

} // namespace bit_string

} // namespace limit_sliding
