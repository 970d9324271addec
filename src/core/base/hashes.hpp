/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

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

/* Returns a check of words that several processes may write at once, without a lock: words of mixed
 * origin do not have this check.  `hash` identifies the owner of the words. */
template <size_t N>
uint64_t check_of(uint64_t hash, const uint64_t (&words)[N]) {
    for (uint64_t word : words) {
        hash ^= word;
        hash = (hash ^ hash >> 32) * 0xff51afd7ed558ccd;
    }

    return hash;
}

/* SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF"), with one round a word
 * and three at the end, as in hash tables.  The hash depends on the byte order of the machine. */
class SipHash13 {
public:
    SipHash13(uint64_t secret0, uint64_t secret1)
        : v0_(secret0 ^ 0x736f6d6570736575), v1_(secret1 ^ 0x646f72616e646f6d),
          v2_(secret0 ^ 0x6c7967656e657261), v3_(secret1 ^ 0x7465646279746573) {}

    uint64_t hash(const void *data, size_t bytes) {
        auto p = static_cast<const unsigned char *>(data);
        size_t left = bytes;

        for (; left >= 8; p += 8, left -= 8) {
            word(load(p, 8));
        }

        word((left ? load(p, left) : 0) | static_cast<uint64_t>(bytes) << 56);

        v2_ ^= 0xff;
        round();
        round();
        round();

        return v0_ ^ v1_ ^ v2_ ^ v3_;
    }

private:
    static uint64_t rotate(uint64_t x, unsigned bits) { return x << bits | x >> (64 - bits); }

    static uint64_t load(const unsigned char *p, size_t bytes) {
        uint64_t x = 0;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        /* loads of fixed size are single instructions */

        if (bytes == 8) {
            std::memcpy(&x, p, 8);
            return x;
        }

        if (bytes >= 4) {
            uint32_t low, high;

            std::memcpy(&low, p, 4);
            std::memcpy(&high, p + bytes - 4, 4);
            return low | static_cast<uint64_t>(high) << (8 * (bytes - 4));
        }
#endif

        for (size_t i = 0; i < bytes; i++) {
            x |= static_cast<uint64_t>(p[i]) << (8 * i);
        }

        return x;
    }

    void word(uint64_t m) {
        v3_ ^= m;
        round();
        v0_ ^= m;
    }

    void round() {
        v0_ += v1_;
        v1_ = rotate(v1_, 13) ^ v0_;
        v0_ = rotate(v0_, 32);
        v2_ += v3_;
        v3_ = rotate(v3_, 16) ^ v2_;
        v0_ += v3_;
        v3_ = rotate(v3_, 21) ^ v0_;
        v2_ += v1_;
        v1_ = rotate(v1_, 17) ^ v2_;
        v2_ = rotate(v2_, 32);
    }

    uint64_t v0_, v1_, v2_, v3_;
};

} // namespace limit_sliding
