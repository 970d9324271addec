/*
 * Copyright (C) the limit_sliding authors
 */

/* A text that grows. */

#ifndef LIMIT_SLIDING_HTTP_API_WRITER_HPP
#define LIMIT_SLIDING_HTTP_API_WRITER_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* A text that grows; `failed` once there is no memory. */

struct Writer {
    ngx_pool_t *pool;
    ngx_chain_t *first;
    ngx_chain_t **next;
    ngx_buf_t *buf;
    size_t len;
    unsigned failed : 1;
};

void text_init(Writer *text, ngx_pool_t *pool);
void ngx_cdecl print(Writer *text, const char *fmt, ...);
void print_json(Writer *text, ngx_str_t *s);
void print_label(Writer *text, ngx_str_t *s);
void print_uri(Writer *text, ngx_str_t *s);

} // namespace limit_sliding

#endif
