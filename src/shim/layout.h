/* Copyright (C) the limit_sliding authors */

/*
 * A change of NGINX's source may move the fields of its structures without a
 * change of its version and signature, which are all that NGINX compares: a
 * security patch of a distribution, or the patches of OpenResty.  The module
 * would read wrong fields, and each request would fail or hang.
 */

#ifndef _NGX_HTTP_LIMIT_SLIDING_LAYOUT_H_INCLUDED_
#define _NGX_HTTP_LIMIT_SLIDING_LAYOUT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


#pragma GCC visibility push(hidden)

/*
 * Compare the structures of the binary that has loaded the module with those
 * that the module was compiled for.  Return NGX_OK, or NGX_ERROR after an error
 * that names a structure.  check_layout() is the first function of the module
 * that uses a structure; check_variables() needs the variables of the core.
 */
ngx_int_t ngx_http_limit_sliding_check_layout(ngx_conf_t *cf);
ngx_int_t ngx_http_limit_sliding_check_variables(ngx_conf_t *cf);

#pragma GCC visibility pop


#endif /* _NGX_HTTP_LIMIT_SLIDING_LAYOUT_H_INCLUDED_ */
