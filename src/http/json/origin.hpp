/* Copyright (C) the limit_sliding authors */

/* The web site that made a browser send a request. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Returns true if a page of another site made a browser send the request.  Browsers send requests
 * for any page, with the address, password and cookies of the user.  Sec-Fetch-Site tells the
 * site; without this header, an Origin other than this host does
 * (https://www.w3.org/TR/fetch-metadata/, RFC 6454).  Other clients send neither. */
bool is_of_another_site(ngx_http_request_t *r);

} // namespace limit_sliding
