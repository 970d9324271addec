/* Copyright (C) the limit_sliding authors */

/* The site that has made a browser send a request. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/*
 * A browser sends requests for any page that it shows, with the address, the password
 * and the cookies of its user.  Returns true if it tells that a page of another site
 * has made it send this one: by Sec-Fetch-Site, or if it does not send that, by an
 * Origin that is not of this host (https://www.w3.org/TR/fetch-metadata/, RFC 6454).
 * Clients that are no browsers send neither.
 */
bool is_of_another_site(ngx_http_request_t *r);

} // namespace limit_sliding
