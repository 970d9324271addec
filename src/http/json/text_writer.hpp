/* Copyright (C) the limit_sliding authors */

/* A text that grows, in buffers that NGINX sends: the body of a response. */

#pragma once

#include <string_view>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* How a text is escaped that stands in quotes. */
enum class Quotes {
    kJson,  /* a string that may stand in HTML, too */
    kLabel, /* the value of a label of Prometheus */
    kUri    /* an argument of a request */
};

/* A writer that ran out of memory takes no more; see failed(). */
class Writer {
public:
    explicit Writer(ngx_pool_t *pool) : pool_(pool) {}

    void append(std::string_view text);

    /* Appends the text of a format of ngx_sprintf(), 1024 bytes at most. */
    void ngx_cdecl print(const char *format, ...);

    /* Appends a text of any bytes in quotes.  Except in a URI, bytes
     * that are not of UTF-8 are replaced. */
    void quote(std::string_view text, Quotes quotes);

    bool failed() const { return failed_; }
    size_t size() const { return size_; }

    /* The text, not empty, for ngx_http_output_filter(). */
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
