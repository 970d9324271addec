/* Copyright (C) the limit_sliding authors */

/* Directives that set a few members of a location's configuration. */

#include "http/conf/configuration.hpp"
#include "http/values/parameter.hpp"
#include "http/values/suggestion.hpp"
#include "ngx/conf.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

const ngx_conf_enum_t log_levels[] = {{ngx_string("off"), 0},
                                      {ngx_string("info"), NGX_LOG_INFO},
                                      {ngx_string("notice"), NGX_LOG_NOTICE},
                                      {ngx_string("warn"), NGX_LOG_WARN},
                                      {ngx_string("error"), NGX_LOG_ERR}};

bool set_log_every(const Param &param, LocConf &conf) {
    ngx_str_t text = param.text;
    ngx_int_t ms = ngx_parse_time(&text, 0);
    if (ms == NGX_ERROR || ms == 0) {
        const auto meant = suggested_time(param.cf->pool, param.value());
        return param.invalid("invalid time \"%V\", it must be at least 1ms%V", &meant);
    }

    conf.log_every = ms;
    return true;
}

constexpr ParamRule<LocConf> log_rules[] = {{{"every="}, set_log_every}};

bool set_no_headers(const Param &param, LocConf &) {
    auto words = words_of(param.cf);
    if (words.size() > 2) {
        return conf_invalid(param.cf, "\"off\" stands alone, it cannot be combined with \"%V\"",
                            &words[view(words[1]) == "off" ? 2 : 1]);
    }

    return true;
}

template <ngx_uint_t kHeader>
bool set_header(const Param &, LocConf &conf) {
    conf.headers |= kHeader;
    return true;
}

constexpr ParamRule<LocConf> header_rules[] = {
    {{"off"}, set_no_headers},
    {{"retry_after"}, set_header<kHeaderRetryAfter>},
    {{"ratelimit"}, set_header<kHeaderDraft>},
    {{"draft"}, set_header<kHeaderDraft>},
    {{"x_ratelimit"}, set_header<kHeaderX>},
    {{"x"}, set_header<kHeaderX>},
};

} // namespace

extern "C" char *ngx_http_limit_sliding_status(ngx_conf_t *cf, ngx_command_t *, void *conf) {
    auto &place = *static_cast<LocConf *>(conf);
    if (place.status_code != NGX_CONF_UNSET_UINT) { return conf_failed("is duplicate"); }

    auto &word = words_of(cf)[1];
    Param param = {cf, word, word};
    return conf_result(param.get_number("status", 400, 599, place.status_code));
}

extern "C" char *ngx_http_limit_sliding_log_level(ngx_conf_t *cf, ngx_command_t *, void *conf) {
    auto &place = *static_cast<LocConf *>(conf);
    if (place.log_level != NGX_CONF_UNSET_UINT) { return conf_failed("is duplicate"); }

    auto &word = words_of(cf)[1];
    for (auto &known : log_levels) {
        if (view(word) == view(known.name)) {
            place.log_level = known.value;
            place.log_every = 0;
            return conf_result(set_params(cf, 2, log_rules, place));
        }
    }

    return conf_error(cf,
                      "invalid log level \"%V\", it must be \"info\", "
                      "\"notice\", \"warn\", \"error\" or \"off\"",
                      &word);
}

extern "C" char *ngx_http_limit_sliding_dry_run(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    return ngx_conf_set_flag_slot(cf, cmd, &static_cast<LocConf *>(conf)->dry_run);
}

extern "C" char *ngx_http_limit_sliding_headers(ngx_conf_t *cf, ngx_command_t *, void *conf) {
    auto &place = *static_cast<LocConf *>(conf);
    if (place.headers != NGX_CONF_UNSET_UINT) { return conf_failed("is duplicate"); }

    /* "ietf" may mean the IETF's draft. */
    for (auto &word : words_of(cf)) {
        if (is_same_name(view(word), "ietf")) {
            return conf_error(cf, "invalid parameter \"%V\", did you mean \"ratelimit\"?", &word);
        }
    }

    place.headers = 0;
    return conf_result(set_params(cf, 1, header_rules, place));
}

} // namespace limit_sliding
