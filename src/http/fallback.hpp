/*
 * Copyright (C) the limit_sliding authors
 */

/* What decides while Redis does not answer. */

#ifndef LIMIT_SLIDING_HTTP_FALLBACK_HPP
#define LIMIT_SLIDING_HTTP_FALLBACK_HPP

#include "http/context.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

ngx_int_t fall_back(Context *ctx, RemoteWait *wait);
void keep_warm(Claim *claims, ngx_uint_t nclaims, uint64_t now_ms);

} // namespace limit_sliding

#endif
