/* Copyright (C) the limit_sliding authors */

#pragma once

#include "http/keys/key_request.hpp"

namespace limit_sliding {

/* Answers a request for a key that this node decides. */
ngx_int_t handle_local(KeyRequest &key);

} // namespace limit_sliding
