/* Copyright (C) the limit_sliding authors */

#include "http/response/log.hpp"

#include <algorithm>
#include <utility>

#include "core/holds/hold.hpp"
#include "core/rules/in_flight.hpp"
#include "ngx/strings.hpp"
#include "redis/shares/claim_units.hpp"

namespace limit_sliding {
namespace {

/* The number of lines omitted before the present one, for log_handler(). */
ngx_uint_t omitted;

/* Prints the number behind the client, because log filters may expect the client right behind the
 * zone.  In Angie 1.12 and later, values behind the message of a line are properties with names,
 * and request log handlers have another signature. */
#if (angie_version >= 1012000)

ngx_log_property_t omitted_property = ngx_log_prop_decl("omitted", "limit_sliding", NGX_LOG_PT_NUM);
ngx_log_ext_handler_pt next_log_handler;

u_char *log_handler(ngx_log_t *log, u_char *buf, u_char *last, void *data) {
    ngx_log_property_key_t key;
    key.id = omitted_property.index;

    auto *p = ngx_log_property(log, buf, last, key, "%ui", omitted);
    return next_log_handler(log, p, last, data);
}

#else

ngx_http_log_handler_pt next_log_handler;

u_char *log_handler(ngx_http_request_t *r, ngx_http_request_t *sr, u_char *buf, size_t len) {
    auto *p = ngx_snprintf(buf, len, ", omitted: %ui", omitted);
    return next_log_handler(r, sr, p, len - (p - buf));
}

#endif

/* Returns true if a line is due now, else counts an omitted line.  0: each line is due. */
bool is_due(ngx_msec_t every_ms, LogPace &pace) {
    if (every_ms == 0) { return true; }

    if (ms_until(pace.after) > 0) {
        pace.omitted++;
        return false;
    }

    pace.after = ngx_current_msec + every_ms;
    return true;
}

/* Logs a line, and the number of lines omitted before. */
template <class... Args>
void log_line(ngx_http_request_t *r, LogPace &pace, ngx_uint_t level, const char *format,
              Args... args) {
    const auto handler = r->log_handler;

    if (pace.omitted != 0) {
        omitted = std::exchange(pace.omitted, 0);
        next_log_handler = handler;
        r->log_handler = log_handler;
    }

    ngx_log_error(level, r->connection->log, 0, format, args...);
    r->log_handler = handler;
}

const char *dry_run_words(const Limit &limit) { return limit.dry_run ? ", dry run" : ""; }

/* A value from a client, escaped so that it cannot forge lines of the log, and cut. */
struct Escaped {
    static constexpr size_t kShown = 64; /* maximum bytes of the value */

    explicit Escaped(const ngx_str_t &value) {
        auto *p = data;

        for (unsigned char ch : first(view(value), kShown)) {
            if (ch < ' ' || ch > '~' || ch == '"' || ch == '\\') {
                p = ngx_sprintf(p, "\\x%02Xd", ch);
            } else {
                *p++ = ch;
            }
        }

        len = p - data;
    }

    size_t len;
    u_char data[4 * kShown];
};

/* Returns the units that the key of a rejected claim holds.  The verdict about a blocked key does
 * not depend on them, so they are read from this node's memory. */
uint64_t held_units(const Claim &claim, const Verdict &verdict) {
    if (verdict.limit != 0) { return verdict.limit + verdict.excess / 1000 - claim.cost; }

    Claim look = claim;
    look.limit = kNarrowMax;
    look_in_flight(&look, 0);
    return InFlight::held(look.state);
}

} // namespace

ngx_int_t init_log([[maybe_unused]] ngx_conf_t *cf) {
#if (angie_version >= 1012000)
    return ngx_log_add_property(cf->cycle, &omitted_property);
#else
    return NGX_OK;
#endif
}

void log_rejected(ngx_http_request_t *r, const LocConf &conf, const Claim &claim,
                  const Verdict &verdict) {
    const auto &limit = limit_of(claim);
    auto &zone = *limit.zone;
    const auto level = conf.log_level;
    if (!is_due(conf.log_every, zone.worker.decisions)) { return; }

    const auto log = [&](const char *format, auto... args) {
        log_line(r, zone.worker.decisions, level, format, dry_run_words(limit), args...);
    };

    if (claim.outcome == Outcome::kRefused && claim.hold != nullptr && claim.hold->no_entry) {
        log("refusing requests%s, zone \"%V\" has no room for another one in flight", &zone.name);
    } else if (claim.outcome == Outcome::kRefused) {
        log("refusing new keys%s, zone \"%V\" is full", &zone.name);
    } else if (kHasRedis && is_fallback(claim)) {
        /* The client is not to blame, so the line reports no excess. */
        log("denying request%s, redis \"%V\" of zone \"%V\" %s", &zone.remote.redis->settings.name,
            &zone.name, why_undecided(zone.remote));
    } else if (zone.policy.is_in_flight()) {
        log("limiting requests in flight%s, %uL of %uL by zone \"%V\"", held_units(claim, verdict),
            verdict.limit, &zone.name);
    } else {
        log("limiting requests%s, excess: %uL.%03uL by zone \"%V\"", verdict.excess / 1000,
            verdict.excess % 1000, &zone.name);
    }

    if (claim.standing == Standing::kBanned) {
        log("limiting requests%s, banned for %uLs by zone \"%V\"", seconds(verdict.retry_after_ms),
            &zone.name);
    }
}

void log_delayed(ngx_http_request_t *r, const LocConf &conf, const Claim &claim, uint64_t now_ms) {
    const auto &limit = limit_of(claim);
    auto &zone = *limit.zone;

    /* Delays are one level below rejections, as in limit_req. */
    const auto level
        = conf.log_level != 0 ? std::min<ngx_uint_t>(conf.log_level + 1, NGX_LOG_INFO) : 0;
    if (!is_logged(r, level) || !is_due(conf.log_every, zone.worker.decisions)) { return; }

    const auto verdict = claim.describe(now_ms);

    log_line(r, zone.worker.decisions, level,
             "delaying request%s, excess: %uL.%03uL, by zone \"%V\"", dry_run_words(limit),
             verdict.excess / 1000, verdict.excess % 1000, &zone.name);
}

void log_bad_value(ngx_http_request_t *r, ZoneConf &zone, const char *name,
                   const ngx_str_t &value) {
    count_request(zone, kCountErrors);
    if (!is_due(loc_conf(r).log_every, zone.worker.bad_values)) { return; }

    const Escaped text(value);
    log_line(r, zone.worker.bad_values, NGX_LOG_ERR,
             "invalid %s \"%*s%s\" of a request in zone \"%V\"", name, text.len, text.data,
             value.len > Escaped::kShown ? "..." : "", &zone.name);
}

void log_bad_usage(ngx_http_request_t *r, std::string_view name, std::string_view value,
                   bool is_clipped) {
    static LogPace pace; /* of this worker; responses belong to no zone */
    if (!is_due(loc_conf(r).log_every, pace)) { return; }

    const Escaped text(to_str(value));
    log_line(r, pace, NGX_LOG_ERR, "invalid usage \"%*s%s\" of a response for name \"%*s\"",
             text.len, text.data, is_clipped ? "..." : "", name.size(), name.data());
}

void log_missing_usage(ngx_http_request_t *r, std::string_view name, LogPace &pace) {
    if (!is_due(60 * 1000, pace)) { return; }

    const auto n = 1 + std::exchange(pace.omitted, 0);
    const auto *location = static_cast<ngx_http_core_loc_conf_t *>(
        ngx_http_get_module_loc_conf(r, ngx_http_core_module));
    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "limit_sliding_usage \"%*s\" was not found in %ui response%s of location \"%V\"",
                  name.size(), name.data(), n, n == 1 ? "" : "s", &location->name);
}

} // namespace limit_sliding
