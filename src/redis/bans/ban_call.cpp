/* Copyright (C) the limit_sliding authors */

#include "redis/bans/ban_call.hpp"

#include <hiredis/hiredis.h>

#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/errands/sender.hpp"
#include "redis/protocol/key_slot.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis/shared/ban_exchange.hpp"

namespace limit_sliding {

/* A worker's part of the exchange of a zone's bans between nodes.  The slot is that of both
 * keys. */
struct BanErrand : Errand {
    const RemoteZone *zone;
    ngx_event_t timer;
    ngx_str_t news;    /* KEYS[1] of bans_script() */
    ngx_str_t ends;    /* KEYS[2] */
    ngx_uint_t ncalls; /* calls that may begin until the timer fires */
    BanCall report;    /* arguments of the call under way */
    bool is_wanted;    /* another call must follow */
    ErrorLog full;     /* for dropped reports, which failures of Redis must not omit */
};

namespace {

/* The most calls of a worker in kBanPollMs, so that a flood of bans is reported in large calls,
 * and no server keeps a worker busy. */
constexpr ngx_uint_t kCallsPerTick = 20;

/* EVALSHA, the script, the number of keys, two keys, and since, after and until_ms of BanCall. */
constexpr size_t kArgsBefore = 8;
constexpr size_t kArgs = kArgsBefore + kScriptBanNumbers * kBansPerCall;

static_assert(5 + kScriptBans * kScriptBanNumbers <= kReplyNumbers);

BanErrand &errand_of(Errand &errand) { return static_cast<BanErrand &>(errand); }

bool put(Node &node, ErrandCall &call) {
    static Arg args[kArgs];
    static u_char text[kArgs * NGX_INT64_LEN];
    BanErrand &ban_errand = errand_of(call.errands.front());
    const RemoteZone &zone = *ban_errand.zone;
    BanCall &report = ban_errand.report;
    size_t n = 0;
    u_char *last = text;
    zone.exchange->fill(&report, *zone.bans, *zone.penalty, ngx_current_msec);
    args[n++] = call.whole ? "EVAL" : "EVALSHA";
    args[n++] = call.whole ? bans_script() : view(zone.redis->bans_sha1);
    args[n++] = "2";
    args[n++] = view(ban_errand.news);
    args[n++] = view(ban_errand.ends);
    args[n++] = append_digits(&last, report.since);
    args[n++] = append_digits(&last, report.after);
    args[n++] = append_digits(&last, report.until_ms);
    for (const ToldBan &ban : Span<const ToldBan>(report.bans, report.n)) {
        const u_char *hash = last;
        last = ngx_sprintf(last, "%016xL", ban.hash);
        args[n++] = view(hash, last - hash);
        args[n++] = append_digits(&last, ban.left_ms);
        args[n++] = append_digits(&last, ban.is_lifted ? kScriptLifted : ban.doublings);
    }

    return node.command(call, {args, n});
}

void set_timer(BanErrand &ban_errand, bool has_asked) {
    if (ngx_exiting) { return; }

    restart_timer(ban_errand.timer,
                  ban_errand.zone->exchange->wait_ms(ngx_current_msec, has_asked));
}

/* Ends a call without a valid reply. */
void failed(Errand &errand, Failure) {
    BanErrand &ban_errand = errand_of(errand);
    ban_errand.zone->exchange->failed(ngx_current_msec, static_cast<uint32_t>(ngx_random()));
    set_timer(ban_errand, true);
}

/* Begins a call, now or after the present one. */
void ask(BanErrand &ban_errand) {
    ban_errand.is_wanted = true;
    if (ban_errand.state != ErrandState::kIdle || ban_errand.ncalls == 0) { return; }

    ban_errand.is_wanted = false;
    ban_errand.ncalls--;

    Nodes &nodes = ban_errand.redis->client.nodes;
    if (!nodes.is_worth(ban_errand.slot)) {
        failed(ban_errand, Failure::kUnsent);
        return;
    }

    Node &node = *nodes.route(ban_errand);
    if (!node.is_usable()) {
        /* these calls come at their own pace, and from one worker of a node */
        node.retry_at = ngx_current_msec;
    }

    send(ban_errand);
}

void answered(Node &node, ErrandCall &call, Reply &reply) {
    BanErrand &ban_errand = errand_of(call.errands.front());
    const RemoteZone &zone = *ban_errand.zone;
    if (reply.type == REDIS_REPLY_ERROR) {
        node.log->write(0, "bans of zone \"%V\": %s", &zone.name, reply_text(&reply));
        return;
    }

    const size_t n = reply.type == REDIS_REPLY_ARRAY ? reply.n : 0;
    const auto result = zone.exchange->read(ban_errand.report, reply.numbers, n, zone.bans,
                                            *zone.penalty, call.sent);
    if (result == BanReply::kInvalid) {
        node.blame(reply);
        return;
    }

    node.succeeded();
    (void)take_errand(call);
    if (result == BanReply::kMore || ban_errand.is_wanted) { ask(ban_errand); }
}

constexpr ErrandKind kBans = {nullptr, put, answered, failed};

void tick(BanErrand &ban_errand) {
    if (ngx_exiting) { return; }

    bool has_turn = ban_errand.zone->exchange->take_turn(ngx_current_msec);
    ban_errand.ncalls = kCallsPerTick;
    set_timer(ban_errand, has_turn);
    if (has_turn || ban_errand.is_wanted) { ask(ban_errand); }
}

/* Makes this worker report the waiting bans; `waits` is false if the new one was dropped. */
void tell(const RemoteZone &zone, bool waits) {
    if (zone.ban_errand == nullptr) { return; }

    if (!waits) {
        zone.ban_errand->full.write(0, "too many bans of zone \"%V\" wait to be told", &zone.name);
    }

    ask(*zone.ban_errand);
}

} // namespace

void enter_bans(RemoteZone &zone) {
    auto *ban_errand = create<BanErrand>(ngx_cycle->pool);
    if (ban_errand == nullptr) { return; }

    ban_errand->zone = &zone;
    ban_errand->full.name = zone.redis->settings.name;
    ban_errand->kind = &kBans;
    ban_errand->redis = zone.redis;
    ban_errand->news = join(ngx_cycle->pool, view(zone.prefix), "bans}:news");
    ban_errand->ends = join(ngx_cycle->pool, view(zone.prefix), "bans}:ends");
    if (ban_errand->news.data == nullptr || ban_errand->ends.data == nullptr) { return; }

    ban_errand->slot = static_cast<ngx_int_t>(key_slot(view(ban_errand->news)));
    init_event<tick>(ban_errand->timer, *ban_errand);
    ban_errand->timer.cancelable = 1; /* an exiting worker does not wait for the timer */
    zone.ban_errand = ban_errand;
    ngx_add_timer(&ban_errand->timer, 1);
}

void tell_ban(const RemoteZone &zone, uint64_t hash) { tell(zone, zone.exchange->tell(hash)); }

void tell_lifted_ban(const RemoteZone &zone, uint64_t hash) {
    tell(zone, zone.exchange->tell_lifted(hash, ngx_current_msec));
}

} // namespace limit_sliding
