/*
 * Copyright (C) the limit_sliding authors
 */

/* Keys as texts, and back. */

#ifndef LIMIT_SLIDING_HTTP_API_KEY_TEXT_HPP
#define LIMIT_SLIDING_HTTP_API_KEY_TEXT_HPP

#include "http/api/writer.hpp"
#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

void print_key(Writer *text, ZoneConf *zone, ngx_str_t *key);
ngx_int_t read_key(ngx_http_request_t *r, ZoneConf *zone, ngx_str_t *key);

} // namespace limit_sliding

#endif
