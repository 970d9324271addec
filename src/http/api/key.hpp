/*
 * Copyright (C) the limit_sliding authors
 */

/* One key. */

#ifndef LIMIT_SLIDING_HTTP_API_KEY_HPP
#define LIMIT_SLIDING_HTTP_API_KEY_HPP

#include "http/zone.hpp"
#include "ngx/ngx.hpp"

namespace limit_sliding {

/* A request for one key. */

struct KeyRequest {
    ZoneConf *zone;
    ngx_str_t key;
    ngx_str_t rate; /* PUT: as given */
    uint32_t own;   /* PUT: that, as a limit; of
                                                     the key, or one of
                                                     LIMIT_SLIDING_OWN_* */
    Claim claim;    /* a look */
    Verdict verdict;
    uint32_t limit;       /* where it has none of its
                                                     own */
    ngx_uint_t unlimited; /* that is not known, or the
                                                     last request had none */

    /* in a zone of Redis */
    ngx_http_request_t *request;
    RemoteClaim remote;
    Waiter waiter;
    KeyCommand order; /* that is under way */
    ngx_uint_t ordered;
};

ngx_int_t api_key(ngx_http_request_t *r, ZoneConf *zone);
void key_forget(KeyRequest *key);
ngx_int_t key_send(ngx_http_request_t *r, KeyRequest *key);

} // namespace limit_sliding

#endif
