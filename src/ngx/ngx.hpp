/* Copyright (C) the limit_sliding authors */

/* NGINX's headers, included as C. */

#pragma once

extern "C" {
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_event_connect.h>
#include <ngx_http.h>
#include <ngx_sha1.h>
}

#if (NGX_PTR_SIZE < 8)
#error "limit_sliding needs a 64-bit platform"
#endif

namespace limit_sliding {

/* Returns the number of an enumerator. */
template <class Enum>
constexpr ngx_uint_t index_of(Enum value) {
    return static_cast<ngx_uint_t>(value);
}

} // namespace limit_sliding
