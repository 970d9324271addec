/* Copyright (C) the limit_sliding authors */

#include "redis/background/ban_spread.hpp"

#include <hiredis/hiredis.h>

#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/calls/ask.hpp"
#include "redis/calls/client.hpp"
#include "redis/protocol/key_slot.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis/shared/ban_exchange.hpp"

namespace limit_sliding {

/* A worker's part of the exchange of a zone's bans between nodes. */
struct BanSpread : Errand {
    const RemoteZone *zone;
    ngx_event_t timer;
    ngx_str_t news;       /* KEYS[1] of bans_script() */
    ngx_str_t ends;       /* KEYS[2] */
    ngx_int_t slot;       /* slot of both keys, in a cluster */
    ngx_uint_t ncalls;    /* calls that may begin until the timer fires */
    ngx_uint_t hops;      /* redirections of the present call */
    bool is_under_way;    /* a call, or the errand that begins it, is under way */
    bool is_wanted;       /* another call must follow */
    bool is_whole;        /* the call is sent as EVAL */
    bool is_after_asking; /* the call is sent after ASKING */
    ErrorLog full;        /* for dropped reports, which failures of Redis must not omit */
};

namespace {

/* The most calls of a worker in kBanPollMs, so that a flood of bans is reported in large calls,
 * and no server keeps a worker busy. */
constexpr ngx_uint_t kCallsPerTick = 20;

/* EVALSHA, the script, the number of keys, two keys, and since, after and until_ms of BanCall. */
constexpr size_t kArgsBefore = 8;
constexpr size_t kArgs = kArgsBefore + kScriptBanNumbers * kBansPerCall;

static_assert(5 + kScriptBans * kScriptBanNumbers <= kReplyNumbers);

struct SpreadCall : Call {
    BanSpread *spread;
    BanCall told;
};

Redis &redis_of(const BanSpread &spread) { return *spread.zone->redis; }

/* Puts the call into the node's buffer.  Returns false if there is no memory. */
bool put(const BanSpread &spread, Node &node, SpreadCall &call) {
    static Arg args[kArgs];
    static u_char text[kArgs * NGX_INT64_LEN];
    const Redis &redis = redis_of(spread);
    size_t n = 0;
    u_char *last = text;
    auto add = [&](const char *format, auto number) {
        u_char *p = last;
        last = ngx_sprintf(p, format, number);
        args[n++] = view(p, last - p);
    };

    args[n++] = spread.is_whole ? "EVAL" : "EVALSHA";
    args[n++] = spread.is_whole ? bans_script() : view(redis.bans_sha1);
    args[n++] = "2";
    args[n++] = view(spread.news);
    args[n++] = view(spread.ends);
    add("%uL", call.told.since);
    add("%uL", call.told.after);
    add("%uL", call.told.until_ms);
    for (const ToldBan &ban : Span<const ToldBan>(call.told.bans, call.told.n)) {
        add("%016xL", ban.hash);
        add("%uL", ban.left_ms);
        add("%ui", ngx_uint_t{ban.is_lifted ? kScriptLifted : ban.doublings});
    }

    return (!spread.is_after_asking || put_asking(node)) && node.command(call, {args, n});
}

void set_timer(BanSpread &spread, bool has_asked) {
    if (ngx_exiting) { return; }

    if (spread.timer.timer_set) { ngx_del_timer(&spread.timer); }

    ngx_add_timer(&spread.timer, spread.zone->exchange->wait_ms(ngx_current_msec, has_asked));
}

/* Ends a call without a valid reply. */
void fail(BanSpread &spread) {
    spread.is_under_way = false;
    spread.zone->exchange->failed(ngx_current_msec, static_cast<uint32_t>(ngx_random()));
    set_timer(spread, true);
}

/* Sends the call once the node is ready. */
void send_to(BanSpread &spread, Node &node) {
    spread.is_under_way = true;
    node.send_errand(spread);
}

/* Begins a call, now or after the present one. */
void ask(BanSpread &spread) {
    Redis &redis = redis_of(spread);
    spread.is_wanted = true;
    if (spread.is_under_way || spread.ncalls == 0 || !start_client(redis)) { return; }

    spread.is_wanted = false;
    spread.is_whole = false;
    spread.is_after_asking = false;
    spread.hops = 0;
    spread.ncalls--;

    Nodes &nodes = redis.client.nodes;
    if (!nodes.is_worth(spread.slot)) {
        fail(spread);
        return;
    }

    Node &node = *nodes.route(spread.slot);
    if (!node.is_usable()) {
        /* these calls come at their own pace, and from one worker of a node */
        node.retry_at = ngx_current_msec;
    }

    send_to(spread, node);
}

/* Sends the call again if the error shows that it did not run.  Returns true if so. */
bool resend(BanSpread &spread, Node &node, const Reply &reply) {
    Nodes &nodes = redis_of(spread).client.nodes;
    if (starts_with(view(reply.text, reply.len), "NOSCRIPT") && !spread.is_whole) {
        spread.is_whole = true;
        send_to(spread, node);
        return true;
    }

    if (!nodes.is_cluster() || spread.hops++ >= kHopsMax) { return false; }

    Node *to = nodes.cluster->redirect(node, spread.slot, reply, &spread.is_after_asking);
    if (to == nullptr) { return false; }

    send_to(spread, *to);
    return true;
}

void refused(BanSpread &spread, Node &node, const Reply &reply) {
    if (resend(spread, node, reply)) { return; }

    auto error = view(reply.text, reply.len);
    node.log->write(0, "bans of zone \"%V\": %s", &spread.zone->name, reply_text(&reply));
    if (starts_with(error, "READONLY") || starts_with(error, "MASTERDOWN")) {
        /* the name may resolve to another server by now */
        node.set_broken("it is a replica");
    }

    fail(spread);
}

/* Handles the reply to a call. */
void answered(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<SpreadCall &>(to);
    BanSpread &spread = *call.spread;
    const RemoteZone &zone = *spread.zone;
    BanReply result = BanReply::kInvalid;
    if (reply != nullptr && reply->type == REDIS_REPLY_ARRAY) {
        result = zone.exchange->read(call.told, reply->numbers, reply->n, zone.bans, *zone.penalty,
                                     call.sent);
    }

    ngx_free(&call);
    if (result != BanReply::kInvalid) {
        node.succeeded();
        spread.is_under_way = false;
        if (result == BanReply::kMore || spread.is_wanted) { ask(spread); }
        return;
    }

    if (reply != nullptr && reply->type == REDIS_REPLY_ERROR) {
        refused(spread, node, *reply);
        return;
    }

    if (reply != nullptr) { node.blame(*reply); }
    fail(spread);
}

/* Runs the errand at a node that is ready. */
void make_call(Errand &errand, Node &node) {
    auto &spread = static_cast<BanSpread &>(errand);
    const RemoteZone &zone = *spread.zone;
    auto *call = create_call<SpreadCall>(answered);
    if (call != nullptr) {
        call->spread = &spread;
        zone.exchange->fill(&call->told, *zone.bans, *zone.penalty, ngx_current_msec);
        if (put(spread, node, *call)) { return; }
    }

    ngx_free(call);
    fail(spread);
}

/* Handles a node that cannot be connected to: another node may know the node of the slot. */
void try_another(Errand &errand, Node &failed) {
    auto &spread = static_cast<BanSpread &>(errand);
    Node *other = redis_of(spread).client.nodes.route(spread.slot);
    if (other != &failed && other->is_usable() && spread.hops++ < kHopsMax) {
        send_to(spread, *other);
    } else {
        fail(spread);
    }
}

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
    spread->run = make_call;
    spread->fail = try_another;
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
