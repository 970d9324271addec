/* Copyright (C) the limit_sliding authors */

/* The directive limit_sliding. */

#include "http/conf/configuration.hpp"
#include "http/values/parameter.hpp"
#include "http/values/rates_and_costs.hpp"
#include "ngx/conf.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Variables without a final value before the response.  A trailing "_" marks a prefix. */
constexpr std::string_view response_variables[] = {"bytes_sent",
                                                   "body_bytes_sent",
                                                   "gzip_ratio",
                                                   "limit_sliding_usage",
                                                   "request_completion",
                                                   "request_time",
                                                   "sent_http_",
                                                   "sent_trailer_",
                                                   "status",
                                                   "upstream_"};

bool is_of_response(std::string_view name) {
    for (auto known : response_variables) {
        const bool is_prefix = known.back() == '_' && name.size() > known.size();
        if (is_same_name({name.data(), is_prefix ? known.size() : name.size()}, known)) {
            return true;
        }
    }

    return false;
}

/* Warns of a cost with a variable of the response.  Such a cost would silently be wrong, because it
 * is evaluated before the response, even with "count_status=". */
void check_cost(const Param &param) {
    auto rest = param.value();
    while (auto variable = next_variable(rest)) {
        if (is_of_response(*variable)) {
            ngx_str_t name = to_str(*variable);
            ngx_conf_log_error(NGX_LOG_WARN, param.cf, 0,
                               "\"$%V\" in \"%V\" is known only after the "
                               "response, but \"cost=\" is evaluated before it, use \"settle=\"",
                               &name, &param.word);
        }
    }
}

/* A size, "zone=name:size", belongs to limit_sliding_zone. */
bool set_zone(const Param &param, Limit &limit) {
    const auto colon = param.value().find(':');
    if (colon != std::string_view::npos) {
        return param.invalid("invalid zone \"%V\", did you mean \"zone=%*s\"?", colon,
                             param.text.data);
    }

    limit.zone = get_zone(param.cf, main_conf(param.cf).zones, param.text);
    return limit.zone != nullptr;
}

bool set_limit_inflight(const Param &param, Limit &limit) {
    uint64_t number;
    limit.rate_word = param.word;
    limit.rate_text = param.text;
    return set_inflight(param, limit.rates[0], number);
}

bool set_limit_rate(const Param &param, Limit &limit) {
    Rate rate;
    Window window;
    if (limit.rate_word.len != 0) {
        return param.invalid("\"%V\" cannot be with \"%V\"", &limit.rate_word);
    }

    limit.rate_word = param.word;
    limit.rate_text = param.text;
    return set_rate(param, limit.rates[0], rate, window);
}

bool set_cost(const Param &param, Limit &limit) {
    if (has_variables(param.text)) {
        check_cost(param);
        return create_expression(param.cf, param.text, limit.cost_value);
    }

    return parse_cost(param.text, limit.cost)
           || param.invalid("invalid cost \"%V\", it must be between 0 and %L or hold a variable",
                            static_cast<int64_t>(NGX_MAX_INT_T_VALUE));
}

bool set_settle(const Param &param, Limit &limit) {
    return has_variables(param.text)
               ? create_expression(param.cf, param.text, limit.settle)
               : param.invalid("invalid settle \"%V\", it must hold a variable");
}

/* Parses "401" or "4xx". */
bool parse_statuses(std::string_view text, StatusRange &range) {
    if (text.size() != 3 || text[0] < '1' || text[0] > '5') { return false; }

    const bool is_class = text[1] == 'x' && text[2] == 'x';
    const ngx_int_t status = is_class ? (text[0] - '0') * 100 : ngx_atoi(bytes(text), text.size());
    range.from = status;
    range.to = status + (is_class ? 99 : 0);
    return status != NGX_ERROR;
}

/* "count_status=401,5xx" */
bool set_count_status(const Param &param, Limit &limit) {
    auto rest = param.value();
    for (;;) {
        size_t size = ngx_min(rest.find(','), rest.size());
        std::string_view text(rest.data(), size);

        auto *range = limit.count_status.add(param.cf->pool);
        if (range == nullptr) { return false; }

        if (!parse_statuses(text, *range)) {
            ngx_str_t shown = to_str(text);
            return conf_invalid(param.cf,
                                "invalid status \"%V\" in \"%V\", it must be "
                                "between 100 and 599, or as \"4xx\"",
                                &shown, &param.word);
        }

        if (size == rest.size()) { return true; }

        rest.remove_prefix(size + 1);
    }
}

template <bool Limit::*kFlag>
bool set_flag(const Param &, Limit &limit) {
    limit.*kFlag = true;
    return true;
}

constexpr ParamRule<Limit> rules[] = {
    {{"zone=", "zone"}, set_zone},
    {{"inflight="}, set_limit_inflight},
    {{"rate="}, set_limit_rate},
    {{"cost="}, set_cost},
    {{"settle="}, set_settle},
    {{"count_status=", {}, {}, ","}, set_count_status},
    {{"after_auth"}, set_flag<&Limit::after_auth>},
    {{"dry_run"}, set_flag<&Limit::dry_run>},
};

constexpr ParamName of_zone[]
    = {{"algorithm="}, {"burst="},   {"calendar="},      {"count_rejected"}, {"delay="},
       {"full="},      {"lease="},   {"limits="},        {"limits_max="},    {"nodelay"},
       {"on_error="},  {"penalty="}, {"penalty_after="}, {"penalty_max="},   {"precision="},
       {"redis="},     {"strict"},   {"sync="},          {"top="},           {"window="}};

/* Adds the limit to the limits of the location. */
bool add_limit(ngx_conf_t *cf, LocConf &conf, const Limit &limit) {
    if (conf.set == NGX_CONF_UNSET_PTR) {
        auto *set = create<LimitSet>(cf->pool);
        if (set == nullptr || main_conf(cf).sets.add(cf->pool, set) == nullptr) { return false; }

        conf.set = set;
    }

    if (conf.set->has(limit.zone)) {
        return conf_invalid(cf, "duplicate limit \"zone=%V\"", &limit.zone->name);
    }

    return conf.set->limits.add(cf->pool, limit) != nullptr;
}

} // namespace

extern "C" char *ngx_http_limit_sliding(ngx_conf_t *cf, ngx_command_t *, void *conf) {
    auto &place = *static_cast<LocConf *>(conf);
    auto words = words_of(cf);
    if (words.size() == 2 && view(words[1]) == "off") {
        if (place.set == nullptr) { return conf_failed("\"off\" is duplicate"); }

        if (place.set != NGX_CONF_UNSET_PTR) {
            return conf_failed("\"off\" stands alone, it cannot be combined with a zone");
        }

        place.set = nullptr;
        return NGX_CONF_OK;
    }

    for (size_t i = 1; i < words.size(); i++) {
        if (place.set == nullptr || view(words[i]) == "off") {
            bool first = (i == 1 && place.set != nullptr);
            return conf_error(cf,
                              "\"off\" of limit_sliding stands alone, it "
                              "cannot be combined with \"%V\"",
                              &words[first ? 2 : 1]);
        }
    }

    if (starts_with(view(words[1]), "$")) {
        return conf_error(cf, "the key \"%V\" belongs to the directive \"limit_sliding_zone\"",
                          &words[1]);
    }

    Limit limit = {};
    limit.cost = 1;
    limit.where = file_line_of(cf);

    if (!set_params(cf, 1, rules, limit, {"limit_sliding_zone", of_zone})) { return conf_failed(); }

    limit.settles = limit.settle != nullptr || !limit.count_status.empty();
    if (!add_limit(cf, place, limit)) { return conf_failed(); }

    if (limit.settles) { main_conf(cf).needs |= NGX_HTTP_LIMIT_SLIDING_SETTLES; }

    return NGX_CONF_OK;
}

} // namespace limit_sliding
