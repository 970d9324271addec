/* Copyright (C) the limit_sliding authors */

#pragma once

#include <array>
#include <cstdint>

#include "core/bit_string.hpp"
#include "core/counter_format.hpp"

namespace limit_sliding {

/* The 44 bits of counts in a state of PartCounter, in a format. */
namespace counter_counts {

/* Requests of each part, 0 the newest .. n the oldest. */
using Counts = std::array<uint64_t, counter_format::kPartsMax + 1>;

/*
 * The sum of the newest n counts: a product has the sums of one, two ...
 * n of them in the places of the counts, none of which overflows.
 */
inline uint64_t recent_of(uint64_t counts, const CounterFormat &f)
{
    return counts * f.ones >> (f.oldest - f.bits) & f.most;
}

inline uint64_t in_units(uint64_t n, const CounterFormat &f)
{
    return (n + (1ULL << f.unit) - 1) >> f.unit;
}

/* A string one or more parts later, without what is over. */
inline uint64_t string_aged(uint64_t string, const CounterFormat &f,
                            uint64_t age)
{
    string <<= age;

    /* the oldest part ends at the zero after n others */
    return string & ((1ULL << bit_string::position(~string, f.parts)) - 1);
}

inline uint64_t aged(uint64_t counts, const CounterFormat &f, uint64_t age)
{
    if (age == 0) {
        return counts;
    }

    switch (f.kind) {
    case CounterFormat::kString:
        return string_aged(counts, f, age);
    case CounterFormat::kFlat:
        return counts << age * f.bits & f.kept;
    default:
        return in_units(counts & counter_format::kCountMax, f) << f.oldest;
    }
}

/* Requests of each part, 0 the newest .. n the oldest. */
inline Counts decode(uint64_t counts, const CounterFormat &f)
{
    Counts requests = {};

    switch (f.kind) {
    case CounterFormat::kString:
        for (unsigned i = 0; counts != 0; counts >>= 1) {
            if ((counts & 1) != 0) {
                requests[i]++;
            } else {
                i++;
            }
        }
        break;

    case CounterFormat::kFlat:
        for (unsigned i = 0; i <= f.parts; i++) {
            requests[i] = counts >> i * f.bits & f.most;
        }
        break;

    default:
        requests[0] = counts & counter_format::kCountMax;
        requests[1] = counts >> f.oldest << f.unit;
        break;
    }

    return requests;
}

inline uint64_t string_with(uint64_t string, uint64_t cost)
{
    return ((string + 1) << cost) - 1;
}

/* False if that format does not hold them. */
inline bool encode(const Counts &requests, const CounterFormat &f,
                   uint64_t *counts)
{
    uint64_t oldest = requests[f.parts];
    uint64_t all = 0;

    for (unsigned i = 0; i <= f.parts; i++) {
        all += requests[i];
    }

    if (f.kind == CounterFormat::kString
            ? all > f.most
            : all - oldest > f.most || oldest > f.most) {
        return false;
    }

    *counts = 0;

    switch (f.kind) {
    case CounterFormat::kString:
        for (unsigned i = f.parts + 1u; i-- > 0;) {
            *counts = string_with(*counts << 1, requests[i]);
        }
        break;

    case CounterFormat::kFlat:
        for (unsigned i = 0; i <= f.parts; i++) {
            *counts |= requests[i] << i * f.bits;
        }
        break;

    default:
        *counts = in_units(oldest, f) << f.oldest | requests[0];
        break;
    }

    return true;
}

} // namespace counter_counts

} // namespace limit_sliding
