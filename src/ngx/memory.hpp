/* Copyright (C) the limit_sliding authors */

/* Typed memory of pools and of the heap.  Allocations return nullptr if there is no memory. */

#pragma once

#include <new>
#include <type_traits>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Allocates n uninitialized objects in a pool. */
template <class T>
T *alloc(ngx_pool_t *pool, size_t n = 1) {
    static_assert(std::is_trivially_destructible_v<T>, "pools run no destructors");
    return static_cast<T *>(ngx_palloc(pool, n * sizeof(T)));
}

/* Allocates like ngx_palloc(), but inline, for allocations of every request. */
inline void *alloc_inline(ngx_pool_t *pool, size_t bytes) {
    auto &block = pool->current->d;
    auto *p = ngx_align_ptr(block.last, NGX_ALIGNMENT);
    if (p + bytes > block.end) { return ngx_palloc(pool, bytes); }

    block.last = p + bytes;
    if (p == nullptr) { __builtin_unreachable(); }

    return p;
}

/* Allocates bytes without alignment. */
inline u_char *alloc_bytes(ngx_pool_t *pool, size_t n) {
    return static_cast<u_char *>(ngx_pnalloc(pool, n));
}

/* Creates a value-initialized object that lives as long as the pool. */
template <class T>
T *create(ngx_pool_t *pool) {
    T *object = alloc<T>(pool);
    return object != nullptr ? new (object) T() : nullptr;
}

/* Creates a value-initialized object that lives until destroy_on_heap(). */
template <class T>
T *create_on_heap() {
    void *place = ngx_alloc(sizeof(T), ngx_cycle->log);
    return place != nullptr ? new (place) T() : nullptr;
}

template <class T>
void destroy_on_heap(T *object) {
    object->~T();
    ngx_free(object);
}

} // namespace limit_sliding
