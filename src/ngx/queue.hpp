/* Copyright (C) the limit_sliding authors */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

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

} // namespace limit_sliding
