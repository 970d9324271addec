/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

namespace limit_sliding {

/* Mixes a hash, as the finalizer of MurmurHash3 does. */
inline uint64_t mixed(uint64_t h) {
    h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;
    return h ^ h >> 33;
}

/* Derives a hash from a hash and a number. */
inline uint64_t mixed(uint64_t hash, uint64_t number) {
    return mixed(hash ^ number * 0x9e3779b97f4a7c15);
}

} // namespace limit_sliding
