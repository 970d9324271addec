/*
 * Copyright (C) the limit_sliding authors
 */

/* Typed memory of the heap, for what lives as long as a worker or shorter. */

#ifndef LIMIT_SLIDING_NGX_HEAP_HPP
#define LIMIT_SLIDING_NGX_HEAP_HPP

#include <new>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* One T with its default values, or zeroed; nullptr if memory is exhausted. */
template <class T>
T *create_on_heap()
{
    void *place = ngx_alloc(sizeof(T), ngx_cycle->log);
    return place != nullptr ? new (place) T() : nullptr;
}

template <class T>
void destroy_on_heap(T *object)
{
    object->~T();
    ngx_free(object);
}

} // namespace limit_sliding

#endif
