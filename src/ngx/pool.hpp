/*
 * Copyright (C) the limit_sliding authors
 */

/* Typed memory of NGINX's pools, which is never freed on its own. */

#ifndef LIMIT_SLIDING_NGX_POOL_HPP
#define LIMIT_SLIDING_NGX_POOL_HPP

#include <new>
#include <type_traits>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Room for n of T, not initialised; nullptr if memory is exhausted. */
template <class T>
T *alloc(ngx_pool_t *pool, size_t n = 1)
{
    static_assert(std::is_trivially_destructible_v<T>,
                  "pools run no destructors");
    return static_cast<T *>(ngx_palloc(pool, n * sizeof(T)));
}

/* The same for bytes, which need no alignment. */
inline u_char *alloc_bytes(ngx_pool_t *pool, size_t n)
{
    return static_cast<u_char *>(ngx_pnalloc(pool, n));
}

/* One T with its default values, or zeroed; nullptr if memory is exhausted. */
template <class T>
T *create(ngx_pool_t *pool)
{
    T *object = alloc<T>(pool);
    return object != nullptr ? new (object) T() : nullptr;
}

} // namespace limit_sliding

#endif
