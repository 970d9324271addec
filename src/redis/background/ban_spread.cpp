/* Copyright (C) the limit_sliding authors */

#include "redis/background/ban_spread.hpp"

#include <hiredis/hiredis.h>

#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/calls/sender.hpp"
#include "redis/protocol/key_slot.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis/shared/ban_exchange.hpp"

namespace limit_sliding {

/* A worker's part of the exchange of a zone's bans between nodes.  The slot is that of both
 * keys. */
struct BanSpread : Errand {
    const RemoteZone *zone;
    ngx_event_t timer;
    ngx_str_t news;    /* KEYS[1] of bans_script() */
    ngx_str_t ends;    /* KEYS[2] */
    ngx_uint_t ncalls; /* calls that may begin until the timer fires */
    BanCall told;      /* arguments of the call under way */
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

BanSpread &spread_of(Errand &errand) { return static_cast<BanSpread &>(errand); }

bool put(Node &node, ErrandCall &call) {
    static Arg args[kArgs];
    static u_char text[kArgs * NGX_INT64_LEN];
    BanSpread &spread = spread_of(call.errands.front());
    const RemoteZone &zone = *spread.zone;
    BanCall &told = spread.told;
    size_t n = 0;
    u_char *last = text;
    zone.exchange->fill(&told, *zone.bans, *zone.penalty, ngx_current_msec);
    args[n++] = call.whole ? "EVAL" : "EVALSHA";
    args[n++] = call.whole ? bans_script() : view(zone.redis->bans_sha1);
    args[n++] = "2";
    args[n++] = view(spread.news);
    args[n++] = view(spread.ends);
    args[n++] = append_digits(&last, told.since);
    args[n++] = append_digits(&last, told.after);
    args[n++] = append_digits(&last, told.until_ms);
    for (const ToldBan &ban : Span<const ToldBan>(told.bans, told.n)) {
        const u_char *hash = last;
        last = ngx_sprintf(last, "%016xL", ban.hash);
        args[n++] = view(hash, last - hash);
        args[n++] = append_digits(&last, ban.left_ms);
        args[n++] = append_digits(&last, ban.is_lifted ? kScriptLifted : ban.doublings);
    }

    return put_call(node, call, {args, n});
}

void set_timer(BanSpread &spread, bool has_asked) {
    if (ngx_exiting) { return; }

    if (spread.timer.timer_set) { ngx_del_timer(&spread.timer); }

    ngx_add_timer(&spread.timer, spread.zone->exchange->wait_ms(ngx_current_msec, has_asked));
}

/* Ends a call without a valid reply. */
void failed(Errand &errand, Failure) {
    BanSpread &spread = spread_of(errand);
    spread.zone->exchange->failed(ngx_current_msec, static_cast<uint32_t>(ngx_random()));
    set_timer(spread, true);
}

/* Begins a call, now or after the present one. */
void ask(BanSpread &spread) {
    spread.is_wanted = true;
    if (spread.state != ErrandState::kIdle || spread.ncalls == 0) { return; }

    spread.is_wanted = false;
    spread.ncalls--;

    Nodes &nodes = spread.redis->client.nodes;
    if (!nodes.is_worth(spread.slot)) {
        failed(spread, Failure::kUnsent);
        return;
    }

    Node &node = *nodes.route(spread);
    if (!node.is_usable()) {
        /* these calls come at their own pace, and from one worker of a node */
        node.retry_at = ngx_current_msec;
    }

    send(spread);
}

void answered(Node &node, ErrandCall &call, Reply &reply) {
    BanSpread &spread = spread_of(call.errands.front());
    const RemoteZone &zone = *spread.zone;
    if (reply.type == REDIS_REPLY_ERROR) {
        node.log->write(0, "bans of zone \"%V\": %s", &zone.name, reply_text(&reply));
        return;
    }

    auto result = BanReply::kInvalid;
    if (reply.type == REDIS_REPLY_ARRAY) {
        result = zone.exchange->read(spread.told, reply.numbers, reply.n, zone.bans, *zone.penalty,
                                     call.sent);
    }

    if (result == BanReply::kInvalid) {
        node.blame(reply);
        return;
    }

    node.succeeded();
    (void)take_errand(call);
    if (result == BanReply::kMore || spread.is_wanted) { ask(spread); }
}

constexpr ErrandKind kBans = {nullptr, put, answered, failed};

void tick(BanSpread &spread) {
    if (ngx_exiting) { return; }

    bool has_turn = spread.zone->exchange->take_turn(ngx_current_msec);
    spread.ncalls = kCallsPerTick;
    set_timer(spread, has_turn);
    if (has_turn || spread.is_wanted) { ask(spread); }
}

/* Makes this worker report the waiting bans; `waits` is false if the new one was dropped. */
void tell(const RemoteZone &zone, bool waits) {
    if (zone.spread == nullptr) { return; }

    if (!waits) {
        zone.spread->full.write(0, "too many bans of zone \"%V\" wait to be told", &zone.name);
    }

    ask(*zone.spread);
}

} // namespace

void enter_bans(RemoteZone &zone) {
    auto *spread = create<BanSpread>(ngx_cycle->pool);
    if (spread == nullptr) { return; }

    spread->zone = &zone;
    spread->full.name = zone.redis->settings.name;
    spread->kind = &kBans;
    spread->redis = zone.redis;
    spread->news = join(ngx_cycle->pool, view(zone.prefix), "bans}:news");
    spread->ends = join(ngx_cycle->pool, view(zone.prefix), "bans}:ends");
    if (spread->news.data == nullptr || spread->ends.data == nullptr) { return; }

    spread->slot = static_cast<ngx_int_t>(key_slot(view(spread->news)));
    init_event<tick>(spread->timer, *spread);
    spread->timer.cancelable = 1; /* an exiting worker does not wait for the timer */
    zone.spread = spread;
    ngx_add_timer(&spread->timer, 1);
}

void tell_ban(const RemoteZone &zone, uint64_t hash) { tell(zone, zone.exchange->tell(hash)); }

void tell_lifted_ban(const RemoteZone &zone, uint64_t hash) {
    tell(zone, zone.exchange->tell_lifted(hash, ngx_current_msec));
}

} // namespace limit_sliding
