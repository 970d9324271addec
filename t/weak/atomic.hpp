/* Copyright (C) the limit_sliding authors */

/*
 * The atomic type of the core in the checks of t/weak, in place of std::atomic: as
 * large, so that the code casts shared memory to it as it always does.  Each access
 * goes to checker.cpp, which plays what the memory model of C++ allows, and knows it
 * by its line of the source.
 */

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weak {

enum class Kind { kLoad, kStore, kExchange, kAdd, kSwap };

/* An access of the source, and the order that it asks for. */
struct Access {
    const char *file;
    int line;
    Kind kind;
    std::memory_order order;
    std::memory_order failure; /* of a compare-and-swap */
};

/* The result is what the word was before. */
struct Operands {
    void *word;
    size_t bytes;
    uint64_t operand;
    uint64_t expected;
};

uint64_t access(const Access &access, const Operands &operands);

constexpr std::memory_order failure_of(std::memory_order order) {
    return order == std::memory_order_acq_rel   ? std::memory_order_acquire
           : order == std::memory_order_release ? std::memory_order_relaxed
                                                : order;
}

} // namespace weak

namespace limit_sliding {

template <class T>
class Atomic {
public:
    static constexpr bool is_always_lock_free = true;

    T load(std::memory_order order = std::memory_order_seq_cst, const char *file = __builtin_FILE(),
           int line = __builtin_LINE()) const {
        return play({file, line, weak::Kind::kLoad, order, order}, 0);
    }

    void store(T with, std::memory_order order = std::memory_order_seq_cst,
               const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        play({file, line, weak::Kind::kStore, order, order}, with);
    }

    T exchange(T with, std::memory_order order = std::memory_order_seq_cst,
               const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return play({file, line, weak::Kind::kExchange, order, order}, with);
    }

    T fetch_add(T with, std::memory_order order = std::memory_order_seq_cst,
                const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return play({file, line, weak::Kind::kAdd, order, order}, with);
    }

    bool compare_exchange_strong(T &expected, T with, std::memory_order order,
                                 std::memory_order failure, const char *file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
        const T seen = play({file, line, weak::Kind::kSwap, order, failure}, with, expected);
        const bool is_same = seen == expected;

        expected = seen;
        return is_same;
    }

    bool compare_exchange_strong(T &expected, T with,
                                 std::memory_order order = std::memory_order_seq_cst,
                                 const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return compare_exchange_strong(expected, with, order, weak::failure_of(order), file, line);
    }

    bool compare_exchange_weak(T &expected, T with,
                               std::memory_order order = std::memory_order_seq_cst,
                               const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return compare_exchange_strong(expected, with, order, weak::failure_of(order), file, line);
    }

    T fetch_or(T with, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return update([with](T seen) { return seen | with; }, file, line);
    }

    T fetch_and(T with, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return update([with](T seen) { return seen & with; }, file, line);
    }

private:
    template <class Change>
    T update(const Change &change, const char *file, int line) {
        T seen = load(std::memory_order_relaxed, file, line);
        while (
            !compare_exchange_strong(seen, change(seen), std::memory_order_seq_cst, file, line)) {}
        return seen;
    }

    T play(const weak::Access &access, T operand, T expected = 0) const {
        return static_cast<T>(weak::access(
            access, {const_cast<T *>(&value_), sizeof(T), uint64_t{operand}, uint64_t{expected}}));
    }

    T value_;
};

} // namespace limit_sliding
