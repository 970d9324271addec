/* Copyright (C) the limit_sliding authors */

#pragma once

#include "http/conf/zone.hpp"

namespace limit_sliding {

/* Answers GET of the keys with limits of their own, page by page, of a zone in the
 * memory of this node. */
ngx_int_t send_limits(ngx_http_request_t *r, ZoneConf &zone);

} // namespace limit_sliding
