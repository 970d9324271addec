/* Copyright (C) the limit_sliding authors */

/* Sixteen bytes of a text, compared at once.
 *
 * The scanner could call glibc's memchr() and memrchr() instead.  In large buffers, they take 0.1
 * instructions a byte, and this class 0.5.  But in buffers of 100 bytes, as event streams have,
 * they take 1.9, and this class 1.4.  The bound of t/settle/usage_cost.t is between these. */

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace limit_sliding {

class ByteBlock {
public:
    static constexpr size_t kSize = 16;

    /* Returns the 16 bytes from p on. */
    static ByteBlock at(const char *p) {
        ByteBlock block;
        std::memcpy(&block.bytes_, p, kSize);
        return block;
    }

    static ByteBlock all(char ch) { return Bytes{} + static_cast<uint8_t>(ch); }

    /* Returns a block with 0xff where both blocks have equal bytes, and 0 elsewhere. */
    ByteBlock operator==(ByteBlock other) const {
        return reinterpret_cast<Bytes>(bytes_ == other.bytes_);
    }

    ByteBlock operator&(ByteBlock other) const { return bytes_ & other.bytes_; }
    ByteBlock operator|(ByteBlock other) const { return bytes_ | other.bytes_; }

#if defined(__SSE2__)

    bool any() const { return mask() != 0; }

    /* Returns the index of the last set byte.  At least one byte must be set. */
    size_t last() const { return 31 - static_cast<size_t>(__builtin_clz(mask())); }

#else

    bool any() const {
        uint64_t words[2];
        std::memcpy(words, &bytes_, kSize);
        return (words[0] | words[1]) != 0;
    }

    size_t last() const {
        size_t i = kSize - 1;
        while (bytes_[i] == 0) {
            i--;
        }

        return i;
    }

#endif

private:
    typedef uint8_t Bytes __attribute__((vector_size(kSize)));

    ByteBlock() = default;
    ByteBlock(Bytes bytes) : bytes_(bytes) {}

#if defined(__SSE2__)
    unsigned mask() const {
        typedef char Chars __attribute__((vector_size(kSize)));
        return static_cast<unsigned>(__builtin_ia32_pmovmskb128(reinterpret_cast<Chars>(bytes_)));
    }
#endif

    Bytes bytes_;
};

} // namespace limit_sliding
