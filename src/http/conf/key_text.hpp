/* Copyright (C) the limit_sliding authors */

/* Keys as people write them, in the API and in files. */

#pragma once

#include <string_view>

#include "http/conf/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Replaces an address, as text or bytes, by the key that requests from there have,
 * if the zone's keys are addresses.  There must be room for 16 bytes.  Returns false
 * if it is no address. */
bool read_key(const ZoneConf &zone, ngx_str_t *key);

/* Returns the text of a key: an address, made in `buf`, or the key. */
std::string_view text_of_key(const ZoneConf &zone, std::string_view key,
                             u_char (&buf)[NGX_INET6_ADDRSTRLEN]);

} // namespace limit_sliding
