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

/* Returns the ms until a time of NGINX's clock, which may wrap; negative if the time is past. */
inline ngx_msec_int_t ms_until(ngx_msec_t time_ms) {
    return static_cast<ngx_msec_int_t>(time_ms - ngx_current_msec);
}

} // namespace limit_sliding
