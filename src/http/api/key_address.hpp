/*
 * Copyright (C) the limit_sliding authors
 */

/* Keys as the API shows and takes them: an address as its text. */

#ifndef LIMIT_SLIDING_HTTP_API_KEY_ADDRESS_HPP
#define LIMIT_SLIDING_HTTP_API_KEY_ADDRESS_HPP

#include <string_view>

#include "http/api/json.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

/* Writes two fields: the key as text, and as it may stand in an argument. */
void write_key(Json &json, const ZoneConf &zone, std::string_view key);

/*
 * Where keys are addresses, makes of a text the key that requests from that
 * address have, in place: there is room for 16 bytes.  The bytes of an address
 * are taken as well.  False: it is no address.
 */
bool read_key(ngx_http_request_t *r, const ZoneConf &zone, ngx_str_t *key);

} // namespace limit_sliding

#endif
