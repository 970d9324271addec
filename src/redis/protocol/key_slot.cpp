/* Copyright (C) the limit_sliding authors */

#include "redis/protocol/key_slot.hpp"

#include <cstdint>

namespace limit_sliding {

namespace {

/* Computes CRC-16/XMODEM, four bits at a time. */
unsigned crc16(std::string_view text) {
    static constexpr uint16_t table[]
        = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
           0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;

    for (char c : text) {
        auto byte = static_cast<unsigned char>(c);

        crc = (crc << 4 ^ table[(crc >> 12 ^ byte >> 4) & 15]) & 0xffff;
        crc = (crc << 4 ^ table[(crc >> 12 ^ byte) & 15]) & 0xffff;
    }

    return crc;
}

} // namespace

unsigned key_slot(std::string_view key) {
    size_t open = key.find('{');

    if (open != key.npos) {
        size_t close = key.find('}', open + 1);

        if (close != key.npos && close != open + 1) {
            key = {key.data() + open + 1, close - open - 1};
        }
    }

    return crc16(key) % kClusterSlots;
}

} // namespace limit_sliding
