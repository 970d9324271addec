
/*
 * Copyright (C) the limit_sliding authors
 */

/* limit_sliding_api: who asks what. */

#include "http/api/api.hpp"

#include "http/api/dashboard.hpp"
#include "http/api/json.hpp"
#include "http/api/key.hpp"
#include "http/api/metrics.hpp"
#include "http/api/response.hpp"
#include "http/api/writer.hpp"
#include "http/configuration.hpp"
#include "http/headers.hpp"
#include "http/module.hpp"
#include "http/parameter.hpp"
#include "http/zone.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

static ngx_int_t api_handler(ngx_http_request_t *r);
static ngx_int_t api_path(ngx_http_request_t *r, ngx_str_t *path);
static ngx_int_t api_zone(ngx_http_request_t *r, ngx_str_t *path,
                          ZoneConf **zone);
static ngx_int_t api_method(ngx_http_request_t *r, ngx_uint_t methods);

constexpr auto kRead = (NGX_HTTP_GET | NGX_HTTP_HEAD);
constexpr auto kWrite = (NGX_HTTP_PUT | NGX_HTTP_DELETE);

#define path_is(path, text)                                                    \
    ((path)->len == sizeof(text) - 1                                           \
     && ngx_strncmp((path)->data, text, sizeof(text) - 1) == 0)

static bool set_write(const Param &param, LocConf &conf)
{
    bool on;
    if (!param.get_either("on", "off", &on)) {
        return false;
    }

    conf.api_write = on;
    return true;
}

static constexpr ParamRule<LocConf> rules[] = {{{"write="}, set_write}};

/* "limit_sliding_api [write=on|off]" */

extern "C" char *ngx_http_limit_sliding_api(ngx_conf_t *cf, ngx_command_t *cmd,
                                            void *conf)
{
    LocConf *lscf = conf;

    ngx_http_core_loc_conf_t *clcf;

    if (lscf->api_write != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->named
#if (NGX_PCRE)
        || clcf->regex
#endif
    ) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" cannot be in a named location, or in one "
                           "given by regular expression",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    lscf->api_write = 0;

    if (!set_params(cf, 1, rules, *lscf)) {
        return NGX_CONF_ERROR;
    }

    clcf->handler = api_handler;

    return NGX_CONF_OK;
}

/*
 * As all handlers of a location, it is also that of "limit_except" there.
 * Returns whether the API answers in this location.
 */

ngx_uint_t merge_api(ngx_conf_t *cf, LocConf *prev, LocConf *conf)
{
    ngx_http_core_loc_conf_t *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->noname && clcf->handler == NULL
        && prev->api_write != NGX_CONF_UNSET) {
        conf->api_write = prev->api_write;
        clcf->handler = api_handler;
    }

    /* another directive of the location may have put its own handler there */

    return clcf->handler == api_handler;
}

static ngx_int_t api_handler(ngx_http_request_t *r)
{
    ngx_int_t rc;
    ngx_str_t path;
    ZoneConf *zone;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (api_path(r, &path) != NGX_OK) {
        return api_error(r, NGX_HTTP_NOT_FOUND, "no such path");
    }

    if (path.len == 0) {
        rc = api_method(r, kRead);

        return rc == NGX_DECLINED ? api_json(r) : rc;
    }

    if (path_is(&path, "metrics")) {
        rc = api_method(r, kRead);

        return rc == NGX_DECLINED ? api_metrics(r) : rc;
    }

    if (path_is(&path, "dashboard")) {
        rc = api_method(r, kRead);

        return rc == NGX_DECLINED ? api_dashboard(r) : rc;
    }

    rc = api_zone(r, &path, &zone);

    if (rc == NGX_DECLINED) {
        return api_error(r, NGX_HTTP_NOT_FOUND, "no such path");
    }

    rc = api_method(r, kRead | kWrite);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (zone == NULL) {
        return api_error(r, NGX_HTTP_NOT_FOUND, "no such zone");
    }

    return api_key(r, zone);
}

/* What follows the location's name, without a slash before or after it. */

static ngx_int_t api_path(ngx_http_request_t *r, ngx_str_t *path)
{
    size_t len;
    ngx_http_core_loc_conf_t *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    len = clcf->name.len;

    if (len && clcf->name.data[len - 1] == '/') {
        len--;
    }

    if (r->uri.len < len) {
        return NGX_DECLINED;
    }

    path->data = r->uri.data + len;
    path->len = r->uri.len - len;

    if (path->len == 0) {
        return NGX_OK;
    }

    if (path->data[0] != '/') {
        return NGX_DECLINED;
    }

    path->data++;
    path->len--;

    return NGX_OK;
}

/* "zones/NAME/key"; *zone is NULL if there is none of that name. */

static ngx_int_t api_zone(ngx_http_request_t *r, ngx_str_t *path,
                          ZoneConf **zone)
{
    ngx_str_t name;

    if (path->len <= sizeof("zones//key") - 1
        || ngx_strncmp(path->data, "zones/", 6) != 0
        || ngx_strncmp(path->data + path->len - 4, "/key", 4) != 0) {
        return NGX_DECLINED;
    }

    name.data = path->data + 6;
    name.len = path->len - (sizeof("zones//key") - 1);

    *zone = find_zone(main_conf(r).zones, view(name));

    return NGX_OK;
}

/* NGX_DECLINED: it may; else it was told so, and the handler returns this. */

static ngx_int_t api_method(ngx_http_request_t *r, ngx_uint_t methods)
{
    char *allow;
    LocConf *lscf;

    lscf = ngx_http_get_module_loc_conf(r, ngx_http_limit_sliding_module);

    if (r->method & methods & kRead) {
        return NGX_DECLINED;
    }

    if (r->method & methods) {

        if (!lscf->api_write) {
            return api_error(r, NGX_HTTP_FORBIDDEN,
                             "this limit_sliding_api is not \"write=on\"");
        }

        return NGX_DECLINED;
    }

    allow = (lscf->api_write && (methods & kWrite)) ? "GET, HEAD, PUT, DELETE"
                                                    : "GET, HEAD";

    if (api_header(r, "Allow", allow) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return api_error(r, NGX_HTTP_NOT_ALLOWED, "method not allowed");
}

ngx_int_t ngx_cdecl api_error(ngx_http_request_t *r, ngx_uint_t status,
                              const char *fmt, ...)
{
    u_char message[256];
    va_list args;
    ngx_str_t s;
    Writer text;

    va_start(args, fmt);
    s.len = ngx_vslprintf(message, message + sizeof(message), fmt, args)
            - message;
    va_end(args);

    s.data = message;

    text_init(&text, r->pool);

    print(&text, "{\"status\":%ui,\"error\":", status);
    print_json(&text, &s);
    print(&text, "}\n");

    return api_send(r, status, "application/json", &text);
}

ngx_int_t api_send(ngx_http_request_t *r, ngx_uint_t status, char *type,
                   Writer *text)
{
    ngx_int_t rc;

    if (text->failed || api_header(r, "Cache-Control", "no-store") != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.status = status;
    r->headers_out.content_length_n = text->len;

    r->headers_out.content_type.data = (u_char *)type;
    r->headers_out.content_type.len = ngx_strlen(type);
    r->headers_out.content_type_len = strcspn(type, ";");
    r->headers_out.content_type_lowcase = NULL;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    text->buf->last_buf = (r == r->main);
    text->buf->last_in_chain = 1;

    return ngx_http_output_filter(r, text->first);
}

ngx_int_t api_header(ngx_http_request_t *r, char *name, char *value)
{
    ngx_str_t text;

    text.data = (u_char *)value;
    text.len = ngx_strlen(value);

    return push_header(r, name, ngx_strlen(name), &text);
}

} // namespace limit_sliding
