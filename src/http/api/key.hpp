/*
 * Copyright (C) the limit_sliding authors
 */

/* Requests for one key: its state, forgetting that, and its own limit. */

#ifndef LIMIT_SLIDING_HTTP_API_KEY_HPP
#define LIMIT_SLIDING_HTTP_API_KEY_HPP

#include "http/zone.hpp"

namespace limit_sliding {

/* Answers GET, PUT and DELETE of a key of the zone. */
ngx_int_t handle_key(ngx_http_request_t *r, ZoneConf &zone);

} // namespace limit_sliding

#endif
