/* Copyright (C) the limit_sliding authors */

/* Keys: how the API shows them, and requests for the state and limit of one. */

#pragma once

#include <string_view>

#include "http/api/json.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

/* Writes two fields: the key as text, also if it is an address, and the same as
 * it may stand in an argument. */
void write_key(Json &json, const ZoneConf &zone, std::string_view key);

/* Answers GET, PUT and DELETE of a key of the zone. */
ngx_int_t handle_key(ngx_http_request_t *r, ZoneConf &zone);

} // namespace limit_sliding
