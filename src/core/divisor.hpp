/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstdint>

namespace limit_sliding {

struct Quotient {
    uint64_t whole;
    uint64_t rest;
};

/*
 * Divides by a number that stays the same, 1 or more, by a multiplication with
 * its inverse.  The product is the quotient or one less, so one comparison
 * makes it exact for any 64-bit number.
 */
class Divisor {
public:
    constexpr Divisor() : divisor_(1), inverse_(UINT64_MAX) {}

    constexpr explicit Divisor(uint64_t divisor)
        : Divisor(divisor, inverse_of(divisor))
    {
    }

    /* `inverse` is inverse_of(divisor), kept from earlier. */
    constexpr Divisor(uint64_t divisor, uint64_t inverse)
        : divisor_(divisor), inverse_(inverse)
    {
    }

    static constexpr uint64_t inverse_of(uint64_t divisor)
    {
        return UINT64_MAX / divisor;
    }

    [[gnu::always_inline]] Quotient divide(uint64_t n) const
    {
        __extension__ using Wide = unsigned __int128;

        auto whole = static_cast<uint64_t>(Wide{n} * inverse_ >> 64);
        uint64_t rest = n - whole * divisor_;
        bool is_less = rest >= divisor_;

        return {whole + is_less, rest - (is_less ? divisor_ : 0)};
    }

    uint64_t rounded_up(uint64_t n) const
    {
        Quotient q = divide(n);

        return q.whole + (q.rest != 0);
    }

    constexpr uint64_t value() const { return divisor_; }

private:
    uint64_t divisor_;
    uint64_t inverse_;
};

} // namespace limit_sliding
