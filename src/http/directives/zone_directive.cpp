/* Copyright (C) the limit_sliding authors */

/* The directive limit_sliding_zone. */

#include <time.h>

#include <algorithm>

#include "core/policy/calendar.hpp"
#include "core/policy/rate.hpp"
#include "http/conf/configuration.hpp"
#include "http/conf/policy_header.hpp"
#include "http/directives/directives.hpp"
#include "http/values/parameter.hpp"
#include "http/values/rates_and_costs.hpp"
#include "http/values/suggestion.hpp"
#include "ngx/conf.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Maximum of "limits_max=", which takes 2.4 GB. */
constexpr uint32_t kOverridesMax = 100000000;

/* The default of "limits_max=" is one override for so many bytes of the zone. */
constexpr size_t kBytesPerOverride = 4096;

/* The longest ban in s: a year of 365 days, as in NGINX's times. */
constexpr ngx_int_t kDayS = 24 * 60 * 60;
constexpr ngx_int_t kPenaltyMaxS = 365 * kDayS;

/* Warns of a key that is the name of a variable without "$", and so the same for all clients. */
void check_key(ngx_conf_t *cf, const ngx_str_t &key) {
    const auto *core = static_cast<ngx_http_core_main_conf_t *>(
        ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module));
    for (auto &known : span<ngx_hash_key_t>(core->variables_keys->keys)) {
        if (is_same_name(view(known.key), view(key))) {
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "the key \"%V\" is the same for all requests, did you mean \"$%V\"?",
                               &key, &key);
        }
    }
}

bool set_key(ngx_conf_t *cf, const ngx_str_t &key, ZoneConf &zone) {
    if (key.len == 0) {
        return conf_invalid(cf, "the key \"\" of zone \"%V\" is empty", &zone.name);
    }

    check_key(cf, key);

    const auto name = only_variable(view(key));
    if (is_same_name(name, "binary_remote_addr")) {
        zone.keys = KeyKind::kAddresses;
    } else if (is_same_name(name, "limit_sliding_client")) {
        zone.keys = KeyKind::kClients;
    }

    return compile_expression(cf, key, zone.key);
}

/* "zone=name:size" */
bool set_name(const Param &param, ZoneConf &zone) {
    size_t colon = param.value().find(':');
    if (colon == 0 || colon == std::string_view::npos) {
        return param.invalid("invalid zone \"%V\", it must be \"zone=name:size\"");
    }

    zone.name = {colon, param.text.data};

    ngx_str_t text = {param.text.len - colon - 1, param.text.data + colon + 1};
    ssize_t size = ngx_parse_size(&text);
    if (size == NGX_ERROR) {
        const auto meant = suggested_size(param.cf->pool, view(text));
        return param.invalid("invalid zone size \"%V\"%V", &meant);
    }

    /* NGINX's share of the memory depends on the size of a page. */
    size_t minimum = ngx_max(32 * 1024, 8 * ngx_pagesize);
    if (static_cast<size_t>(size) < minimum) {
        return param.invalid("zone \"%V\" is too small, the minimum is %uzk", minimum / 1024);
    }

    zone.size = size;

    auto *other = find_zone(main_conf(param.cf).zones, view(zone.name));
    if (other != nullptr && other->size != 0) {
        return conf_invalid(param.cf, "duplicate zone \"%V\", it is already bound to key \"%V\"",
                            &zone.name, &other->key.complex.value);
    }

    return set_key(param.cf, words_of(param.cf)[1], zone);
}

/* Returns true if the zone has the algorithm.  Logs an error and returns false for others. */
bool is_of(Algorithm algorithm, const Param &param, const ZoneConf &zone) {
    return zone.policy.algorithm == algorithm
           || param.invalid("\"%V\" belongs to \"algorithm=%V\" only",
                            &algorithm_names[index_of(algorithm)]);
}

bool take_window(const Param &param, const Window &window, ZoneConf &zone) {
    zone.policy.window_ms = window.ms;
    zone.policy.calendar = window.calendar;
    return window.calendar == Calendar::kNone || is_of(Algorithm::kFixed, param, zone);
}

bool set_window(const Param &param, ZoneConf &zone) {
    Window window = {};
    if (window.parse(param.value()) && window.calendar != Calendar::kNone) {
        return take_window(param, window, zone);
    }

    ngx_str_t text = param.text;
    ngx_int_t ms = ngx_parse_time(&text, 0);
    if (ms == NGX_ERROR) {
        const auto meant = suggested_window(param.cf->pool, param.value());
        return param.invalid("invalid window \"%V\", it must be a time, \"day\", \"week\", "
                             "\"month\" or \"year\"%V",
                             &meant);
    }

    if (ms < ngx_int_t{kWindowMinMs} || ms > ngx_int_t{kWindowMaxMs}) {
        return param.invalid("\"%V\" must be between 100ms and 30d");
    }

    zone.policy.window_ms = ms;
    return true;
}

int64_t offset_ms_at(int64_t utc_ms) {
    const time_t utc_s = utc_ms / 1000;
    struct tm tm;
    localtime_r(&utc_s, &tm);
    return int64_t{tm.tm_gmtoff} * 1000;
}

/* Returns the UTC offsets of the server's time zone; nullptr: out of memory.  Workers inherit the
 * offsets from the master, so that all workers have the same windows.  The state of a key may be
 * of a calendar year that began before the last one, and a configuration is hardly in use for
 * longer than 20 years. */
const UtcOffsets *find_local_offsets(ngx_pool_t *pool) {
    constexpr int64_t kYearMs = int64_t{366} * 24 * 60 * 60 * 1000;
    constexpr int64_t kYearsBefore = 2;
    constexpr int64_t kYearsAfter = 20;

    /* Time zones change their offset twice a year, or four times if summer time omits Ramadan. */
    constexpr size_t kMost = 5 * (kYearsBefore + kYearsAfter);

    auto *all = alloc<UtcOffset>(pool, kMost);
    auto *found = create<UtcOffsets>(pool);
    if (all == nullptr || found == nullptr) { return nullptr; }

    const int64_t now_ms = int64_t{ngx_time()} * 1000;
    *found = UtcOffsets::find(now_ms - kYearsBefore * kYearMs, now_ms + kYearsAfter * kYearMs,
                              offset_ms_at, all, kMost);
    return found;
}

/* The zone itself need not have a calendar window: overrides may have one. */
bool set_calendar(const Param &param, ZoneConf &zone) {
    bool is_utc;
    if (!is_of(Algorithm::kFixed, param, zone) || !param.get_either("utc", "local", is_utc)) {
        return false;
    }

    if (is_utc) { return true; }

    auto &offsets = main_conf(param.cf).local_offsets;
    if (offsets == nullptr) { offsets = find_local_offsets(param.cf->pool); }

    zone.policy.offsets = offsets;
    return offsets != nullptr;
}

/* Takes the window of a rate such as "5/15m".  A "window=" beside it must be the same. */
bool take_rate_window(const Param &param, const Window &window, ZoneConf &zone) {
    if (zone.policy.window().is_given() && zone.policy.window() != window) {
        for (auto &word : words_of(param.cf)) {
            if (!starts_with(view(word), "window=")) { continue; }

            return param.invalid("\"%V\" has another window than \"%V\"", &word);
        }
    }

    return take_window(param, window, zone);
}

/* Sets the rate.  Without "window=", also sets the window: that of the rate, or its unit. */
bool set_zone_rate(const Param &param, ZoneConf &zone) {
    Rate rate = {};
    Window window = {};
    if (!set_rate(param, zone.rate, rate, window)) { return false; }

    if (window.is_given() && !take_rate_window(param, window, zone)) { return false; }

    zone.rate_text = param.text;

    auto &window_ms = zone.policy.window_ms;
    if (window_ms == 0) { window_ms = rate.per_ms; }

    if (window_ms == 0) {
        return param.invalid("\"%V\" %s and needs the \"window=\" parameter",
                             zone.rate != nullptr ? "varies" : "has no unit");
    }

    return zone.rate != nullptr
           || set_limit(param.cf, param.word, rate, window_ms, zone.limit_max(), zone.limit,
                        file_line_of(param.cf));
}

/* Returns false, and logs an error, if a parameter of rates is beside "inflight=". */
bool has_only_inflight(const Param &param) {
    constexpr std::string_view kAllowed[]
        = {"zone=", "inflight=", "full=", "limits=", "limits_max=", "top=", "redis=", "on_error="};

    for (auto &word : Span(words_of(param.cf).begin() + 2, words_of(param.cf).size() - 2)) {
        const auto is_it = [&](std::string_view name) { return starts_with(view(word), name); };
        if (std::any_of(std::begin(kAllowed), std::end(kAllowed), is_it)) { continue; }

        return conf_invalid(param.cf, "\"%V\" cannot be with \"inflight=\"", &word);
    }

    return true;
}

bool set_zone_inflight(const Param &param, ZoneConf &zone) {
    zone.policy.algorithm = Algorithm::kInFlight;
    zone.rate_text = param.text;
    return has_only_inflight(param) && set_inflight(param, zone.rate, zone.limit);
}

bool set_algorithm(const Param &param, ZoneConf &zone) {
    for (size_t i = 0; i < kAlgorithms - 1; i++) {
        if (param.value() == view(algorithm_names[i])) {
            zone.policy.algorithm = static_cast<Algorithm>(i);
            return true;
        }

        if (is_similar(param.value(), view(algorithm_names[i]))
            || is_misspelt(param.value(), view(algorithm_names[i]))) {
            return param.invalid("unknown algorithm \"%V\", did you mean \"%V\"?",
                                 &algorithm_names[i]);
        }
    }

    return param.invalid("unknown algorithm \"%V\", it must be \"counter\", "
                         "\"log\", \"fixed\", \"token_bucket\" or \"leaky_bucket\"");
}

bool set_precision(const Param &param, ZoneConf &zone) {
    if (!is_of(Algorithm::kCounter, param, zone)) { return false; }

    /* A precision of 0 is "auto". */
    if (param.value() == "auto") { return true; }

    ngx_int_t n = ngx_atoi(param.text.data, param.text.len);
    if (n < 1 || n > 60) {
        return param.invalid("invalid number \"%V\", it must be \"auto\" or between 1 and 60");
    }

    zone.policy.precision = static_cast<uint32_t>(n);
    return true;
}

bool set_strict(const Param &param, ZoneConf &zone) {
    zone.policy.strict = true;
    return is_of(Algorithm::kCounter, param, zone);
}

bool set_count_rejected(const Param &param, ZoneConf &zone) {
    if (zone.remote.sync_ms != 0) { return param.invalid("\"%V\" cannot be with \"sync=\""); }

    zone.policy.counts_rejected = true;
    return true;
}

bool set_burst(const Param &param, ZoneConf &zone) {
    auto &policy = zone.policy;
    bool is_token = (policy.algorithm == Algorithm::kTokenBucket);
    if (!is_token && policy.algorithm != Algorithm::kLeakyBucket) {
        return param.invalid("\"%V\" belongs to \"algorithm=token_bucket\" and "
                             "\"algorithm=leaky_bucket\" only");
    }

    /* A bucket without tokens would admit no request. */
    if (!param.get_number("number", is_token, kLimitMax, policy.burst)) { return false; }

    if (policy.burst != 0 && zone.limit != 0 && policy.capacity(zone.limit) < policy.burst) {
        return param.invalid("\"%V\" is too much for this rate, at which it "
                             "takes longer than 49 days to run off");
    }

    return true;
}

bool set_delay(const Param &param, ZoneConf &zone) {
    return is_of(Algorithm::kLeakyBucket, param, zone)
           && param.get_number("number", 1, kLimitMax, zone.policy.undelayed);
}

bool set_nodelay(const Param &param, ZoneConf &zone) {
    if (!is_of(Algorithm::kLeakyBucket, param, zone)) { return false; }

    if (zone.policy.undelayed != 0) { return param.invalid("\"%V\" cannot be with \"delay=\""); }

    zone.policy.undelayed = kNeverDelayed;
    return true;
}

bool set_full(const Param &param, ZoneConf &zone) {
    bool evict;
    if (!param.get_either("evict", "deny", evict)) { return false; }

    zone.policy.full = evict ? WhenFull::kEvict : WhenFull::kDeny;
    return true;
}

/* Returns true if this node keeps the overrides.  Else logs an error and returns false. */
bool has_overrides(const Param &param, const ZoneConf &zone) {
    return !zone.is_remote()
           || param.invalid("\"%V\" cannot be with \"redis=\": own limits of keys are in Redis");
}

bool set_limits(const Param &param, ZoneConf &zone) {
    if (has_variables(param.text)) {
        return param.invalid("invalid file \"%V\", it cannot hold a variable");
    }

    zone.override_file.path = param.text;
    return has_overrides(param, zone)
           && ngx_conf_full_name(param.cf->cycle, &zone.override_file.path, 1) == NGX_OK;
}

bool set_limits_max(const Param &param, ZoneConf &zone) {
    return has_overrides(param, zone)
           && param.get_number("number", 1, kOverridesMax, zone.override_file.max);
}

bool set_top(const Param &param, ZoneConf &zone) {
    return param.get_either("on", "off", zone.rejected.top);
}

/* Parses the length of a ban. */
bool get_ban_length(const Param &param, uint64_t &length_ms) {
    ngx_str_t text = param.text;
    const ngx_int_t s = ngx_parse_time(&text, 1);
    if (s == NGX_ERROR || s < 1 || s > kPenaltyMaxS) {
        const auto meant = suggested_time(param.cf->pool, param.value());
        return param.invalid("invalid time \"%V\", it must be between 1s and 1y%V", &meant);
    }

    param.warn_of_months(s / kDayS);
    length_ms = uint64_t(s) * 1000;
    return true;
}

bool set_penalty(const Param &param, ZoneConf &zone) {
    auto &penalty = zone.rejected.penalty;
    if (!get_ban_length(param, penalty.penalty_ms)) { return false; }

    penalty.max_ms = penalty.penalty_ms;
    penalty.window_ms = zone.policy.window_ms;
    penalty.after = 1;
    return true;
}

bool set_penalty_after(const Param &param, ZoneConf &zone) {
    auto &penalty = zone.rejected.penalty;
    if (!zone.rejected.are_banned()) { return param.invalid("\"%V\" needs \"penalty=\""); }

    return param.get_number("number", 1, kPenaltyAfterMax, penalty.after);
}

bool set_penalty_max(const Param &param, ZoneConf &zone) {
    auto &penalty = zone.rejected.penalty;
    if (!zone.rejected.are_banned()) { return param.invalid("\"%V\" needs \"penalty=\""); }

    if (!get_ban_length(param, penalty.max_ms)) { return false; }

    return penalty.max_ms >= penalty.penalty_ms
           || param.invalid("\"%V\" is less than the penalty of %uLs", penalty.penalty_ms / 1000);
}

/* The setters run in this order.  Most need the algorithm; the rate needs the window, and the
 * largest limit of the algorithm in shared memory or in Redis. */
constexpr ParamRule<ZoneConf> rules[] = {
    {{"zone=", "zone="}, set_name},
    {{"inflight="}, set_zone_inflight},
    {{"algorithm="}, set_algorithm},
    {{"window="}, set_window},
    {{"calendar="}, set_calendar},
    {{"precision="}, set_precision},
    {{"strict"}, set_strict},
    {{"redis="}, set_redis},
    {{"sync="}, set_sync},
    {{"rate=", "rate=", "inflight="}, set_zone_rate},
    {{"burst="}, set_burst},
    {{"delay="}, set_delay},
    {{"nodelay"}, set_nodelay},
    {{"full="}, set_full},
    {{"count_rejected"}, set_count_rejected},
    {{"lease="}, set_lease},
    {{"on_error="}, set_on_error},
    {{"limits="}, set_limits},
    {{"limits_max="}, set_limits_max},
    {{"top="}, set_top},
    {{"penalty="}, set_penalty},
    {{"penalty_after="}, set_penalty_after},
    {{"penalty_max="}, set_penalty_max},
};

constexpr ParamName of_place[]
    = {{"after_auth"}, {"cost="}, {"count_status="}, {"dry_run"}, {"settle="}};

} // namespace

extern "C" char *ngx_http_limit_sliding_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *) {
    auto words = words_of(cf);
    if (starts_with(view(words[1]), "zone=")) {
        return conf_error(cf, "\"%V\" must have a key before \"%V\"", &cmd->name, &words[1]);
    }

    for (size_t i = 2; i < words.size(); i++) {
        if (starts_with(view(words[i]), "$")) {
            return conf_error(cf, "invalid parameter \"%V\", the key is one word, the first",
                              &words[i]);
        }

        /* "limits=", the most similar name, is a file */
        if (starts_with(view(words[i]), "limit=")) {
            return conf_error(cf, "invalid parameter \"%V\", did you mean \"rate=\"?", &words[i]);
        }
    }

    ZoneConf zone = {};
    zone.where = file_line_of(cf);
    zone.rejected.top = true;

    if (!set_params(cf, 2, rules, zone, {"limit_sliding", of_place})) { return conf_failed(); }

    if (zone.override_file.max == 0 && !zone.is_remote()) {
        zone.override_file.max = ngx_max(zone.size / kBytesPerOverride, 8);
    }

    zone.policy.zone_limit = zone.limit;
    zone.rejected.are_watched = zone.rejected.top || zone.rejected.are_banned();

    auto *defined = get_zone(cf, main_conf(cf).zones, zone.name);
    if (defined == nullptr || !quote_name(cf->pool, zone)) { return conf_failed(); }

    *defined = zone;
    return NGX_CONF_OK;
}

} // namespace limit_sliding
