/* Copyright (C) the limit_sliding authors */

/* A growing text in NGINX's buffers, for the body of a response. */

#pragma once

#include <string_view>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Ways to escape a quoted text. */
enum class Quotes {
    kJson,  /* a JSON string, which may also stand in HTML */
    kLabel, /* the value of a Prometheus label */
    kUri    /* an argument of a request */
};

/* A writer that ran out of memory ignores further text (see failed()). */
class Writer {
public:
    explicit Writer(ngx_pool_t *pool) : pool_(pool) {}

    void append(std::string_view text);

    /* Appends a text in the format of ngx_sprintf(), at most 1024 bytes. */
    void ngx_cdecl print(const char *format, ...);

    /* Appends a text of any bytes in quotes.  Invalid UTF-8 is replaced, except for kUri. */
    void quote(std::string_view text, Quotes quotes);

    bool failed() const { return failed_; }
    size_t size() const { return size_; }

    /* Returns the text, which must not be empty, for ngx_http_output_filter(). */
    ngx_chain_t *finish(bool last_of_request);

private:
    void add_buffer();
    size_t escape(std::string_view text, Quotes quotes);

    ngx_pool_t *pool_;
    ngx_chain_t *first_ = nullptr;
    ngx_chain_t **next_ = &first_;
    ngx_buf_t *buf_ = nullptr;
    size_t size_ = 0;
    bool failed_ = false;
};

} // namespace limit_sliding
