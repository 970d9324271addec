/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/policy.hpp"

namespace limit_sliding {

/*
 * Limits of single keys, in place of that of their zone.  Two keys are taken
 * for one if they share 42 bits of their hash.
 *
 * Every entry is one word, so a process may die at any moment:
 *
 *     fingerprint of the key 34 | limit 30
 *
 * 0: never used.  An entry of a limit that was taken away keeps its place, for
 * the next one.  Places are probed one after the other, up to so many: that is
 * what a request costs at most.
 */
class Overrides {
public:
    /* The bytes of a table with room for so many, or nearly. */
    static constexpr size_t bytes_for(size_t places) {
        return sizeof(Overrides) + places * sizeof(uint64_t);
    }

    /* Makes a table of zeroed memory of so many bytes. */
    void init(size_t places) { places_ = places; }

    /* 0: there are none; callers read it before find(). */
    uint64_t count() const { return count_; }

    /* Returns the key's limit, or kLimitUnset or kUnlimited. */
    uint64_t find(uint64_t hash) const;

    /* Sets it: 1 .. kLimitMax, or one of these two.  Returns false if there is
     * no room for another one. */
    bool set(uint64_t hash, uint64_t limit);

private:
    uint64_t *words() const {
        return reinterpret_cast<uint64_t *>(const_cast<Overrides *>(this) + 1);
    }

    template <class Visit>
    void search(uint64_t hash, const Visit &visit) const;
    void remove(uint64_t hash);

    uint64_t count_;
    uint64_t places_;
};

} // namespace limit_sliding
