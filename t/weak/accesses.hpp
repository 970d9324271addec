/* Copyright (C) the limit_sliding authors */

/* Accesses of the source that were played, and those whose order is another one. */

#pragma once

#include "atomic.hpp"

namespace weak {

struct Count {
    Access access;
    uint64_t times;
    bool is_weak;
};

Count &count_of(const Access &access);

/* Returns the access with the order that is to be played. */
Access as_played(const Count &count, const Access &access);

const char *name_of(Kind kind);
const char *name_of(std::memory_order order);

} // namespace weak
