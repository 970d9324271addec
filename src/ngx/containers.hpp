/* Copyright (C) the limit_sliding authors */

/* NGINX's arrays, lists and queues with typed elements. */

#pragma once

#include <new>
#include <type_traits>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Refers to adjacent elements without owning them. */
template <class T>
class Span {
public:
    constexpr Span() = default;
    constexpr Span(T *first, size_t size) : first_(first), size_(size) {}

    template <size_t N>
    constexpr Span(T (&elements)[N]) : first_(elements), size_(N) {}

    constexpr T *begin() const { return first_; }
    constexpr T *end() const { return first_ + size_; }
    constexpr size_t size() const { return size_; }
    constexpr bool empty() const { return size_ == 0; }
    constexpr T &operator[](size_t i) const { return first_[i]; }

private:
    T *first_ = nullptr;
    size_t size_ = 0;
};

/* Returns the elements of an NGINX array. */
template <class T>
Span<T> span(const ngx_array_t &array) {
    return {static_cast<T *>(array.elts), array.nelts};
}

/* An array with typed elements, empty when zeroed.  add() may move elements, so pointers to them
 * are valid until the next add(). */
template <class T>
class Array {
    static_assert(std::is_trivially_copyable_v<T>, "NGINX moves elements");

public:
    /* Adds an element.  Returns nullptr if there is no memory. */
    T *add(ngx_pool_t *pool, const T &element = T()) {
        if (array_.elts == nullptr && ngx_array_init(&array_, pool, 2, sizeof(T)) != NGX_OK) {
            return nullptr;
        }

        void *place = ngx_array_push(&array_);
        return place != nullptr ? new (place) T(element) : nullptr;
    }

    T *begin() const { return static_cast<T *>(array_.elts); }
    T *end() const { return begin() + array_.nelts; }
    size_t size() const { return array_.nelts; }
    bool empty() const { return array_.nelts == 0; }
    T &operator[](size_t i) const { return begin()[i]; }

private:
    ngx_array_t array_ = {};
};

/* An intrusive, non-owning list over NGINX's queue.  Call init() first, and never move a list. */
template <class T, auto link>
class List {
public:
    /* Iterates over the list.  The loop may remove its present item. */
    class Iterator {
    public:
        explicit Iterator(ngx_queue_t *at) : at_(at), next_(at->next) {}

        T &operator*() const { return item(at_); }

        Iterator &operator++() {
            *this = Iterator(next_);
            return *this;
        }

        bool operator!=(const Iterator &other) const { return at_ != other.at_; }

    private:
        ngx_queue_t *at_;
        ngx_queue_t *next_;
    };

    static void remove(T &removed) { ngx_queue_remove(&(removed.*link)); }

    void init() { ngx_queue_init(&head_); }
    bool empty() const { return head_.next == &head_; }
    T &front() { return item(head_.next); }
    T &back() { return item(head_.prev); }
    void push_front(T &added) { ngx_queue_insert_head(&head_, &(added.*link)); }
    void push_back(T &added) { ngx_queue_insert_tail(&head_, &(added.*link)); }

    T &pop_front() {
        T &first = front();
        remove(first);
        return first;
    }

    T &pop_back() {
        T &last = back();
        remove(last);
        return last;
    }

    Iterator begin() { return Iterator(head_.next); }
    Iterator end() { return Iterator(&head_); }

private:
    static T &item(ngx_queue_t *at) {
        auto offset = reinterpret_cast<size_t>(&(static_cast<T *>(nullptr)->*link));
        return *reinterpret_cast<T *>(reinterpret_cast<u_char *>(at) - offset);
    }

    ngx_queue_t head_;
};

/* Calls a function with each element of an NGINX list. */
template <class T, class Function>
void for_each(ngx_list_t &list, Function function) {
    for (auto *part = &list.part; part != nullptr; part = part->next) {
        for (auto &element : Span(static_cast<T *>(part->elts), part->nelts)) {
            function(element);
        }
    }
}

} // namespace limit_sliding
