/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/atomics.hpp"

namespace limit_sliding {

/* Marks the pages of a table in shared memory that were ever used.  A walk over a table omits the
 * other pages: the first read of an unused page of shared memory would allocate the page.  The
 * marks are bytes behind the table. */
struct PageMarks {
    static constexpr size_t kPageBytes = 4096;
    static constexpr size_t kRoomMin = 64 * 1024; /* a smaller table has no marks */

    uint64_t offset; /* of the marks, from the table; 0: no marks, all pages count as used */

    /* Returns the size of the marks, given the room for the table and its marks. */
    static size_t bytes_for(size_t room) { return room < kRoomMin ? 0 : room / kPageBytes + 2; }

    /* Places the marks at the end of this room.  Returns the room for the table. */
    size_t init(size_t room) {
        const size_t left = room - bytes_for(room);
        offset = left == room ? 0 : left;
        return left;
    }

    /* Must be called before the first use of a place: a process may die in between. */
    void mark(void *table, const void *place) const {
        if (offset == 0) { return; }

        auto &page = mark_of(table, place);

        if (page.load(std::memory_order_relaxed) == 0) { page.store(1, std::memory_order_relaxed); }
    }

    bool is_used(void *table, const void *place) const {
        return offset == 0 || mark_of(table, place).load(std::memory_order_relaxed) != 0;
    }

private:
    Atomic<uint8_t> &mark_of(void *table, const void *place) const {
        const auto first = reinterpret_cast<uintptr_t>(table) / kPageBytes;
        const auto page = reinterpret_cast<uintptr_t>(place) / kPageBytes;

        return reinterpret_cast<Atomic<uint8_t> *>(static_cast<char *>(table)
                                                   + offset)[page - first];
    }
};

} // namespace limit_sliding
