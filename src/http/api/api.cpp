/* Copyright (C) the limit_sliding authors */

#include "http/api/api.hpp"

#include "http/json/api_response.hpp"
#include "http/keys/keys.hpp"
#include "http/response/headers.hpp"
#include "http/values/parameter.hpp"
#include "ngx/containers.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

constexpr ngx_uint_t kRead = NGX_HTTP_GET | NGX_HTTP_HEAD;
constexpr ngx_uint_t kWrite = NGX_HTTP_PUT | NGX_HTTP_DELETE | NGX_HTTP_POST;

/* Returns the path behind the location's name, without the slash between them.  Returns "/", an
 * unknown path, if the path does not begin with the name. */
std::string_view path_of(ngx_http_request_t *r) {
    const auto *location = static_cast<ngx_http_core_loc_conf_t *>(
        ngx_http_get_module_loc_conf(r, ngx_http_core_module));

    std::string_view name = view(location->name);
    std::string_view path = view(r->uri);
    cut_suffix(&name, "/");

    if (path.size() < name.size()) { return "/"; }

    path.remove_prefix(name.size());
    return path.empty() || cut_prefix(&path, "/") ? path : "/";
}

/* Returns true if the origin, such as "https://name:8080", matches the request's Host header. */
bool is_of_host(ngx_http_request_t *r, std::string_view origin) {
    const ngx_table_elt_t *host = r->headers_in.host;

    return host != nullptr && (cut_prefix(&origin, "http://") || cut_prefix(&origin, "https://"))
           && is_same_name(origin, view(host->value));
}

/* Returns true if a page of another site made a browser send the request.  Browsers send requests
 * for any page, with the address, password and cookies of the user.  Sec-Fetch-Site tells the
 * site; without this header, an Origin other than this host does
 * (https://www.w3.org/TR/fetch-metadata/, RFC 6454).  Other clients send neither. */
bool is_of_another_site(ngx_http_request_t *r) {
    bool is_told = false, is_other_site = false, is_other_origin = false;

    for_each<ngx_table_elt_t>(r->headers_in.headers, [&](const ngx_table_elt_t &header) {
        const std::string_view name = view(header.key);
        const std::string_view value = view(header.value);

        if (is_same_name(name, "Sec-Fetch-Site")) {
            is_told = true;
            is_other_site |= value != "same-origin" && value != "none";
        } else if (is_same_name(name, "Origin")) {
            is_other_origin |= !is_of_host(r, value);
        }
    });

    return is_told ? is_other_site : is_other_origin;
}

/* Returns NGX_DECLINED if the method is allowed; else sends an error and returns its result. */
ngx_int_t check_method(ngx_http_request_t *r, ngx_uint_t methods) {
    const bool writes = loc_conf(r).api_write;

    if (r->method & methods & kRead) { return NGX_DECLINED; }

    if (r->method & methods) {
        const char *reason = !writes                 ? "this limit_sliding_api is not \"write=on\""
                             : is_of_another_site(r) ? "a page of another site may change nothing"
                                                     : nullptr;
        return reason == nullptr ? NGX_DECLINED : send_error(r, NGX_HTTP_FORBIDDEN, reason);
    }

    const char *allow = writes && (methods & kWrite) ? "GET, HEAD, PUT, DELETE, POST" : "GET, HEAD";

    if (!push_header(r, "Allow", to_str(allow))) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    return send_error(r, NGX_HTTP_NOT_ALLOWED, "method not allowed");
}

ngx_int_t api_handler(ngx_http_request_t *r) {
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) { return rc; }

    std::string_view path = path_of(r);
    const auto send = path.empty()          ? send_report
                      : path == "metrics"   ? send_metrics
                      : path == "dashboard" ? send_dashboard
                                            : nullptr;
    if (send != nullptr) {
        rc = check_method(r, kRead);
        return rc == NGX_DECLINED ? send(r) : rc;
    }

    const bool is_of_zone = cut_prefix(&path, "zones/");
    const bool is_list = is_of_zone && cut_suffix(&path, "/limits");
    if (!is_of_zone || (!is_list && !cut_suffix(&path, "/key")) || path.empty()) {
        return send_error(r, NGX_HTTP_NOT_FOUND, "no such path");
    }

    rc = check_method(r, is_list ? kRead : kRead | kWrite);
    if (rc != NGX_DECLINED) { return rc; }

    ZoneConf *zone = find_zone(main_conf(r).zones, path);
    if (zone == nullptr) { return send_error(r, NGX_HTTP_NOT_FOUND, "no such zone"); }

    if (!is_list) { return handle_key(r, *zone); }

    return kHasRedis && zone->is_remote() ? send_overrides_of_redis(r, *zone)
                                          : send_overrides(r, *zone);
}

bool set_write(const Param &param, LocConf &conf) {
    if (!param.get_either("on", "off", conf.api_write)) { return false; }

    main_conf(param.cf).charges |= conf.api_write == 1;
    return true;
}

constexpr ParamRule<LocConf> kRules[] = {{{"write="}, set_write}};

} // namespace

extern "C" char *ngx_http_limit_sliding_api(ngx_conf_t *cf, ngx_command_t *cmd, void *data) {
    auto &conf = *static_cast<LocConf *>(data);
    auto &location = core_loc_conf(cf);

    if (conf.api_write != NGX_CONF_UNSET) { return conf_failed("is duplicate"); }

    bool is_named = location.named;
#if (NGX_PCRE)
    is_named = is_named || location.regex != nullptr;
#endif

    if (is_named) {
        return conf_error(cf,
                          "\"%V\" cannot be in a named location, or in one "
                          "given by regular expression",
                          &cmd->name);
    }

    conf.api_write = 0;
    conf.api_where = file_line_of(cf);
    location.handler = api_handler;
    return conf_result(set_params(cf, 1, kRules, conf));
}

bool merge_api(ngx_conf_t *cf, const LocConf *prev, LocConf *conf) {
    auto &location = core_loc_conf(cf);

    /* "limit_except" has the handler of its location. */
    if (location.noname && location.handler == nullptr && prev->api_write != NGX_CONF_UNSET) {
        conf->api_write = prev->api_write;
        location.handler = api_handler;
    }

    /* Another directive of the location may have set its own handler. */
    return location.handler == api_handler;
}

} // namespace limit_sliding
