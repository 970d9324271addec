/* Copyright (C) the limit_sliding authors */

#pragma once

#include "http/keys/key_request.hpp"

namespace limit_sliding {

/* Answers a request for a key in Redis. */
ngx_int_t handle_in_redis(KeyRequest &key);

} // namespace limit_sliding
