/* Copyright (C) the limit_sliding authors */

#pragma once

#include <array>
#include <cstdint>

#include "core/divisor.hpp"

namespace limit_sliding {

/*
 * How a state of PartCounter keeps the counts of n + 1 parts in 44 bits.
 *
 *     kString  a string of bits, the newest the lowest one: 1 is a request, 0
 *              the end of a part; so n zeros, and ones up to the largest limit
 *     kFlat    counts of the same width, that of the newest part the lowest
 *     kLarge   n is 1: the present count in 30 bits, and above it that of the
 *              window before, in 14 bits, in units that are rounded up
 */
struct CounterFormat {
    enum Kind : uint8_t { kString, kFlat, kLarge };

    uint64_t most; /* that the window may hold: of a string all parts, else the
                      newest n */
    uint64_t ones; /* flat: the lowest bit of each of the newest n counts */
    uint64_t kept; /* flat: the bits of all n + 1 counts */
    Divisor ticks; /* n in a millisecond, see PartCounter */
    Kind kind;
    uint8_t number;
    uint8_t parts;  /* n, of a window */
    uint8_t bits;   /* flat: of a count */
    uint8_t oldest; /* bits below the oldest count */
    uint8_t unit;   /* large: log2 of the unit of the oldest count */
};

/* What is known of the format of a limit. */
enum class CounterKind {
    kAny,
    kString,
    kFlat,
    kWhole /* flat or large, of one part */
};

/* Formats are numbered from the finest to the coarsest. */
namespace counter_format {

constexpr unsigned kCountsBits = 44;
constexpr unsigned kLargeBits = 30;
constexpr unsigned kPartsMax = 34;

/* A limit, and what a window may hold, is at most this. */
constexpr uint64_t kCountMax = (1ULL << kLargeBits) - 1;

constexpr unsigned kStrings = 3;
constexpr unsigned kWhole = 9;  /* flat, and of one part only */
constexpr unsigned kLarge = 10; /* the first of these */

/* Of strings the largest limit, else the binary digits of it. */
constexpr std::array<uint8_t, 14> kSizes
    = {10, 15, 20, 5, 6, 7, 8, 11, 14, 22, 24, 26, 28, 30};

constexpr unsigned kFormats = kSizes.size();

static_assert(kFormats < 16, "a state of all ones is the table's");

constexpr CounterFormat make(unsigned number)
{
    CounterFormat f = {};
    unsigned size = kSizes[number];
    unsigned parts = 1;

    if (number < kStrings) {
        parts = kCountsBits - size;
        f.kind = CounterFormat::kString;
        f.most = size;
    } else if (number >= kLarge) {
        f.kind = CounterFormat::kLarge;
        f.most = (1ULL << size) - 1;
        f.oldest = kLargeBits;

        /* as what is rounded up may need one digit more */
        f.unit = static_cast<uint8_t>(size + 1 + kLargeBits - kCountsBits);
    } else {
        parts = kCountsBits / size - 1;
        f.kind = CounterFormat::kFlat;
        f.most = (1ULL << size) - 1;
        f.kept = (1ULL << (parts + 1) * size) - 1;
        f.bits = static_cast<uint8_t>(size);
        f.oldest = static_cast<uint8_t>(parts * size);

        for (unsigned i = 0; i < parts; i++) {
            f.ones |= 1ULL << i * size;
        }
    }

    f.number = static_cast<uint8_t>(number);
    f.ticks = Divisor(parts);
    f.parts = static_cast<uint8_t>(parts);

    return f;
}

constexpr std::array<CounterFormat, kFormats> make_all()
{
    std::array<CounterFormat, kFormats> all = {};

    for (unsigned i = 0; i < kFormats; i++) {
        all[i] = make(i);
    }

    return all;
}

inline constexpr auto kAll = make_all();

static_assert(kAll[0].parts == kPartsMax, "no format has more parts");
static_assert(kAll[kWhole].parts == 1 && kAll[kWhole - 1].parts > 1,
              "the first of one part");

/* Limits below this have a place each, others one for their digits. */
constexpr unsigned kSmall = 32;
constexpr unsigned kSmallDigits = 5;

constexpr std::array<uint8_t, kSmall + kLargeBits - kSmallDigits> make_finest()
{
    std::array<uint8_t, kSmall + kLargeBits - kSmallDigits> finest = {};

    for (unsigned i = 0; i < finest.size(); i++) {
        uint64_t limit
            = i < kSmall ? i : (1ULL << (i - kSmall + kSmallDigits + 1)) - 1;

        while (finest[i] < kWhole && kAll[finest[i]].most < limit) {
            finest[i]++;
        }
    }

    return finest;
}

inline constexpr auto kFinest = make_finest();

/*
 * The format for a limit, 1 .. kCountMax.  The large ones are for counts that
 * need them.
 */
inline unsigned finest(uint32_t limit)
{
    unsigned digits = 32 - static_cast<unsigned>(__builtin_clz(limit));

    return kFinest[limit < kSmall ? limit : digits + kSmall - kSmallDigits - 1];
}

} // namespace counter_format

} // namespace limit_sliding
