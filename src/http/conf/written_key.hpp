/* Copyright (C) the limit_sliding authors */

/* Keys as operators write them, in the API and in files. */

#pragma once

#include <string_view>

#include "http/conf/zone_conf.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Replaces an address, as text or bytes, by the key of requests from there, if the zone's keys
 * are addresses.  `key` needs room for 16 bytes.  Returns false if `key` is no address. */
bool read_key(const ZoneConf &zone, ngx_str_t *key);

/* Returns the text of a key: an address printed to `buf`, or the key itself. */
std::string_view text_of_key(const ZoneConf &zone, std::string_view key,
                             u_char (&buf)[NGX_INET6_ADDRSTRLEN]);

} // namespace limit_sliding
