/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/logic/remote.hpp"

#include <algorithm>

namespace limit_sliding {

namespace {

/* CRC-16/XMODEM, four bits at a time. */
unsigned crc16(const unsigned char *data, size_t length)
{
    static constexpr uint16_t table[]
        = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
           0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;

    for (size_t i = 0; i < length; i++) {
        crc = (crc << 4 ^ table[(crc >> 12 ^ data[i] >> 4) & 15]) & 0xffff;
        crc = (crc << 4 ^ table[(crc >> 12 ^ data[i]) & 15]) & 0xffff;
    }

    return crc;
}

} // namespace

unsigned cluster_slot(const void *key, size_t length)
{
    const auto *first = static_cast<const unsigned char *>(key);
    const unsigned char *last = first + length;
    const unsigned char *open = std::find(first, last, '{');

    if (open != last) {
        const unsigned char *close = std::find(open + 1, last, '}');

        if (close != last && close != open + 1) {
            first = open + 1;
            last = close;
        }
    }

    return crc16(first, static_cast<size_t>(last - first)) % kClusterSlots;
}

} // namespace limit_sliding
