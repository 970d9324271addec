/* Copyright (C) the limit_sliding authors */

/*
 * The atomic type of the core in unit tests, in place of std::atomic: it calls a function before
 * and after each access, so that step.hpp can stop a process there.
 */

#pragma once

#include <atomic>

namespace limit_sliding {

/* Nothing is called while these are null. */
inline void (*before_access)(const void *word);
inline void (*after_access)(const void *word);

template <class T>
class Atomic : public std::atomic<T> {
    using Base = std::atomic<T>;
    using Order = std::memory_order;

    template <class Access>
    auto observe(const Access &access) const {
        if (before_access != nullptr) { before_access(this); }

        const auto result = access();

        if (after_access != nullptr) { after_access(this); }

        return result;
    }

public:
    T load(Order order = std::memory_order_seq_cst) const {
        return observe([&] { return Base::load(order); });
    }

    void store(T with, Order order = std::memory_order_seq_cst) {
        observe([&] { return Base::store(with, order), true; });
    }

    T exchange(T with, Order order = std::memory_order_seq_cst) {
        return observe([&] { return Base::exchange(with, order); });
    }

    T fetch_add(T with, Order order = std::memory_order_seq_cst) {
        return observe([&] { return Base::fetch_add(with, order); });
    }

    T fetch_or(T with, Order order = std::memory_order_seq_cst) {
        return observe([&] { return Base::fetch_or(with, order); });
    }

    T fetch_and(T with, Order order = std::memory_order_seq_cst) {
        return observe([&] { return Base::fetch_and(with, order); });
    }

    T fetch_xor(T with, Order order = std::memory_order_seq_cst) {
        return observe([&] { return Base::fetch_xor(with, order); });
    }

    template <class... Orders>
    bool compare_exchange_strong(T &expected, T with, Orders... orders) {
        return observe([&] { return Base::compare_exchange_strong(expected, with, orders...); });
    }

    template <class... Orders>
    bool compare_exchange_weak(T &expected, T with, Orders... orders) {
        return observe([&] { return Base::compare_exchange_weak(expected, with, orders...); });
    }

    operator T() const { return load(); }

    T operator=(T with) {
        store(with);
        return with;
    }
};

} // namespace limit_sliding
