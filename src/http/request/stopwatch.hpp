/* Copyright (C) the limit_sliding authors */

#pragma once

#include "http/response/context.hpp"
#include "ngx/event.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Measures one of kMeasured decisions of a worker. */
class Stopwatch {
public:
    /* Must be called before the limits of a stage are run. */
    [[gnu::always_inline]] void begin(ngx_http_request_t *r) {
        if (--left_ == 0) { start(r); }
    }

    /* Must be called with the result of the limits. */
    [[gnu::always_inline]] void end(ngx_http_request_t *r, ngx_int_t rc) {
        if (since_ns_ != 0) { stop(r, rc); }
    }

private:
    /* A prime, so that the measured requests of a client that repeats a sequence differ. */
    static constexpr unsigned kMeasured = 127;

    /* Starts, unless limits of the request were run before. */
    [[gnu::noinline]] void start(ngx_http_request_t *r) {
        left_ = kMeasured;
        since_ns_ = get_ctx(r) == nullptr ? clock_ns() : 0;
    }

    /* Adds the time to the histogram of the zone that decided first, if a zone did. */
    [[gnu::noinline]] void stop(ngx_http_request_t *r, ngx_int_t rc) {
        const auto ns = clock_ns() - since_ns_;
        const auto *ctx = get_ctx(r);
        since_ns_ = 0;
        if (rc == NGX_AGAIN || ctx == nullptr || ctx->nclaims == 0) { return; }

        limit_of(ctx->claims[0]).zone->memory.aside.times->add(ns);
    }

    unsigned left_ = kMeasured; /* decisions until the watch starts */
    uint64_t since_ns_ = 0;     /* time of the start, of clock_ns(); 0: the watch is stopped */
};

} // namespace limit_sliding
