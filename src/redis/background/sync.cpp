/* Copyright (C) the limit_sliding authors */

#include "redis/background/sync.hpp"

#include <algorithm>

#include "core/limiter/limiter.hpp"
#include "core/rules/counter_kinds.hpp"
#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/calls/ask.hpp"
#include "redis/calls/script_call.hpp"
#include "redis/calls/settlement.hpp"
#include "redis/shared/outbox.hpp"

namespace limit_sliding {

namespace {

/* The ask, of one part, by which this worker must soon report units of a key to Redis.  The units
 * are in the outbox, in shared memory, unless they found no room there.  The ask is idle until
 * they are due. */
struct Notice : Ask {
    ngx_event_t timer;   /* until the units are due, then until the call must be over */
    ngx_queue_t in_list; /* in the list of the client */
    size_t bytes;        /* memory of the notice */
    uint64_t hash;       /* of the key in the outbox */
    uint64_t taken;      /* units under way, or without room in the outbox */
    uint64_t again;      /* units of this report, or of the next one, that were sent before */
    uint64_t owed;       /* units of settled costs for which Redis had no room at its last reply */
    ngx_msec_t until;    /* time until which other workers leave the units under way alone */
    bool has_room;       /* the units are in the outbox */
    bool is_named;       /* name_keys() was called */
};

using NoticeList = List<Notice, &Notice::in_list>;

/* The most bytes of a worker's notices: room for 40,000 of them with short keys.  This bounds
 * memory while Redis is away.  Units without a notice wait until the next request of their key
 * finds them overdue. */
constexpr size_t kNoticeBytesMax = 32 << 20;

/* Time in ms between attempts while Redis is away, if the interval is not longer. */
constexpr uint64_t kRetryMs = 500;

/* The longest time in ms, if the interval is not longer, between calls for a key without room:
 * its limit may have changed. */
constexpr uint64_t kLookMs = 1000;

/* Time in ms that a call may take beyond the timeouts of its connection and its reply. */
constexpr uint64_t kGraceMs = 2000;

/* Number of windows in which the pace of a key decays to 0. */
constexpr uint64_t kPaceWindows = 16;

/* The demand of other nodes is learned from intervals with at least this many units. */
constexpr uint64_t kGuessMin = 8;

NoticeList &notices_of(Client &client) {
    return reinterpret_cast<NoticeList &>(client.notices.list);
}

uint64_t call_ms(const Redis &redis) {
    return redis.settings.connect_timeout + redis.settings.timeout + kGraceMs;
}

const RemoteZone &zone_of(const Notice &notice) { return *notice.parts[0].zone; }

uint64_t outbox_hash(const Claim &claim) {
    const RemoteClaim &remote = remote_of(claim);
    return claim.key_hash() ^ (remote.asked != nullptr ? remote.asked : claim.policy)->salt;
}

/* Returns true if another worker may have taken over the key, because this worker was stopped for
 * too long: the reply is out of date then, and the units under way are not its own. */
bool is_late(const Notice &notice) { return ms_until(notice.until) < 0; }

void free_notice(Notice &notice) {
    if (notice.timer.timer_set) { ngx_del_timer(&notice.timer); }

    NoticeList::remove(notice);
    notice.redis->client.notices.bytes -= notice.bytes;
    ngx_free(&notice);
}

void set_timer(Notice &notice, uint64_t ms) {
    if (notice.timer.timer_set) { ngx_del_timer(&notice.timer); }
    ngx_add_timer(&notice.timer, ms);
}

bool is_idle(const Notice &notice) { return notice.state == ErrandState::kIdle; }

void send_notice(Notice &notice, bool early);

void name(Notice &notice) {
    if (!notice.is_named) { name_keys(notice); }

    notice.is_named = true;
}

void timer_ended(Notice &notice) {
    if (is_idle(notice)) { send_notice(notice, false); }
}

/* Adds units to the outbox, or requests a call without units.  Counts units that are evicted.
 * Inline, because each request of a zone with sync= calls this function. */
[[gnu::always_inline]] inline Outbox::Added add_units(const RemoteZone &zone, uint64_t hash,
                                                      uint64_t units, uint64_t *due_ms) {
    uint64_t evicted = 0;
    const uint64_t now_ms = ngx_current_msec;
    const auto added = units != 0
                           ? zone.outbox->add(hash, units, now_ms, zone.sync_ms, due_ms, &evicted)
                           : zone.outbox->look(hash, now_ms, zone.sync_ms, due_ms, &evicted);
    if (evicted != 0) { count_unsettled(zone.redis->client, evicted); }

    return added;
}

/* Ends a call.  If another worker has taken over the key, units to be sent again count as new. */
Outbox::Added end_units(const Notice &notice, const Outbox::Rest &rest, uint64_t *due_ms) {
    auto &outbox = *zone_of(notice).outbox;
    if (!is_late(notice)) { return outbox.done(notice.hash, ngx_current_msec, rest, due_ms); }

    if (rest.units == 0) { return Outbox::Added::kDone; }

    return add_units(zone_of(notice), notice.hash, rest.units, due_ms);
}

/* Ends the notice, or sets the timer to send the rest when it is due.  An exiting worker leaves
 * the rest to the next worker that adds units. */
void go_on(Notice &notice, const Outbox::Rest &rest) {
    auto due_ms = uint64_t{ngx_current_msec};
    const auto next = end_units(notice, rest, &due_ms);

    notice.taken = 0;
    notice.again = rest.units;
    if (next == Outbox::Added::kFull) { count_unsettled(notice.redis->client, rest.units); }

    if (next != Outbox::Added::kSend || ngx_exiting) {
        free_notice(notice);
        return;
    }

    set_timer(notice, due_ms - ngx_current_msec);
}

/* Keeps units pending that could not be sent; units without room in the outbox are lost. */
void keep_units(Notice &notice) {
    const uint64_t wait_ms = std::max<uint64_t>(zone_of(notice).sync_ms, kRetryMs);
    if (!notice.has_room) {
        count_unsettled(notice.redis->client, notice.taken);
        free_notice(notice);
        return;
    }

    go_on(notice,
          {notice.taken, false, ngx_current_msec + wait_ms, wait_ms, ngx_current_msec + wait_ms});
}

/* Returns the used units of the key in this node's memory. */
uint64_t used_here(Claim claim) {
    claim.purpose = Purpose::kLook;
    claim.cost = 0;
    claim.verdict = nullptr;
    (void)acquire(&claim, 1, ngx_current_msec);
    return claim.policy->used(claim.describe(ngx_current_msec));
}

/* Drops units that have left the window while Redis was away: more than are used here and wait
 * for later windows. */
void drop_past(Notice &notice) {
    const RemoteZone &zone = zone_of(notice);
    const Policy policy = known_policy(notice.parts[0]);
    Claim claim = notice.parts[0].claim;
    claim.set_policy(policy);

    const auto seen = zone.outbox->seen(notice.hash, ngx_current_msec);
    const bool is_past = ngx_current_msec - seen.at_ms >= policy.window_ms;
    if (notice.taken <= 1 || (seen.at_ms != 0 && !is_past)) { return; }

    const Override own = zone.told->find(claim.key_hash());
    if (own.is_unlimited()) { return; }

    if (own.is_limited()) { claim.limit = own.limit; }

    claim.fit_core();
    const uint64_t kept = used_here(claim) + notice.owed;
    const uint64_t past = notice.taken - std::min(notice.taken, kept);
    count_unsettled(notice.redis->client, past);
    notice.taken -= past;
}

void send_notice(Notice &notice, bool early) {
    const RemoteZone &zone = zone_of(notice);
    const uint64_t most_ms = call_ms(*notice.redis);
    uint64_t due_ms = 0;
    const auto took = notice.has_room ? zone.outbox->take(notice.hash, ngx_current_msec, most_ms,
                                                          early, &notice.taken, &due_ms)
                                      : Outbox::Took::kTaken;

    if (took == Outbox::Took::kNothing) {
        free_notice(notice);
        return;
    }

    if (took == Outbox::Took::kLater) {
        set_timer(notice, due_ms - ngx_current_msec);
        return;
    }

    if (notice.has_room) { drop_past(notice); }

    name(notice);
    notice.until = ngx_current_msec + std::min(most_ms, Outbox::kWaitMaxMs);
    if (is_away(*notice.redis) || !notice.redis->client.nodes.is_worth(notice.slot)) {
        keep_units(notice);
        return;
    }

    notice.parts[0].claim.purpose = notice.taken != 0 ? Purpose::kConsume : Purpose::kLook;
    notice.units = std::max<uint64_t>(notice.taken, 1);
    /* an exiting worker waits for the reply */
    set_timer(notice, most_ms);
    send(notice);
}

/* Estimates how many units other nodes consume until the next reply, or have consumed and not
 * reported yet, if all nodes together might exceed the limit.  Other nodes keep their share, in
 * proportion to this node's own use.  Two successive replies tell how many units all nodes
 * admitted; the peak decays within kPaceWindows. */
class Guess {
public:
    Guess(const Outbox::Seen &last, const Notice &notice, uint64_t before, uint64_t window_ms,
          ngx_msec_t sent)
        : share_(last.share), pace_(last.pace),
          own_(notice.taken - std::min(notice.taken, notice.again)) {
        if (last.at_ms == 0) { return; }

        const uint64_t elapsed_ms = std::max<uint64_t>(sent - last.at_ms, 1);
        others_ = before - std::min(before, last.used);

        /* from absolute times, so that no fraction is lost each time */
        const auto forgotten = [&](uint64_t until_ms) {
            return static_cast<uint64_t>(Wide{pace_} * until_ms / (kPaceWindows * window_ms));
        };
        pace_ -= std::min(pace_, forgotten(last.at_ms + elapsed_ms) - forgotten(last.at_ms));

        const uint64_t all = own_ + others_;
        if (all < kGuessMin) { return; }

        /* the share is a mean of intervals, weighted by their units */
        const uint64_t told = others_ * 256 / all;
        const uint64_t pace = all * std::min(zone_of(notice).sync_ms, elapsed_ms) / elapsed_ms;
        is_learned_ = true;
        pace_ = std::max(pace_, pace);
        share_ = share_ == 0 || pace_ == 0
                     ? told
                     : (share_ * (2 * pace_ - pace) + told * pace + pace_) / (2 * pace_);
    }

    /* Returns the estimated units, `room` at most. */
    uint64_t units(uint64_t room) const {
        if (4 * pace_ < room || share_ == 0) { return 0; }

        const uint64_t expected = own_ * share_ / (256 - std::min<uint64_t>(share_, 255));
        const uint64_t untold
            = is_learned_ ? std::min(expected - std::min(expected, others_), room) : 0;
        return untold + (room - untold) * share_ / 256;
    }

    Outbox::Seen seen(uint64_t after, ngx_msec_t sent) const {
        return {after, sent, share_, pace_};
    }

private:
    uint64_t share_; /* share of other nodes, in 1/256 */
    uint64_t pace_;  /* peak of the units of all nodes in an interval */
    uint64_t own_;
    uint64_t others_ = 0;
    bool is_learned_ = false;
};

/* Sets the parts of a counter in this node's memory as they are in Redis, with `more` units in
 * the newest part, so that the count fades at the same times.  Other algorithms do nothing. */
void set_parts(const Claim &claim, const RemoteState &state, uint64_t more) {
    if (claim.policy->algorithm != Algorithm::kCounter) { return; }

    const auto parts = static_cast<uint64_t>(state.values[0]);
    uint64_t count[kCounterPartsMax + 1];
    if (parts > kCounterPartsMax) { return; }

    for (uint64_t i = 0; i <= parts; i++) {
        count[i] = static_cast<uint64_t>(state.values[3 + i]);
    }

    count[parts] += more;
    (void)set_counts(claim, parts, static_cast<uint64_t>(state.values[1]), count, state.now_ms,
                     ngx_current_msec);
}

/* Sets the used units of the key in this node's memory, of which `owed` are left to later
 * windows. */
void set_used(const Claim &claim, uint64_t used, uint64_t owed) {
    /* Further units over the limit would be a debt as well.  Only the small one of a bucket has run
     * off when the next request is admitted. */
    if (!claim.policy->is_bucket()) { used = std::min(used, claim.limit + owed); }

    const uint64_t here = used_here(claim);
    if (here < used) {
        (void)charge(claim, used - here, ngx_current_msec);
    } else {
        give_back(claim, here - used, ngx_current_msec);
    }
}

/* Returns true if the window of the reply is over. */
bool is_over(const PartAnswer &told, ngx_msec_t sent) {
    return told.policy.algorithm == Algorithm::kFixed
           && told.state.part_ends_ms(told.policy) - told.state.now_ms <= ngx_current_msec - sent;
}

/* Sets the state of a key in this node's memory by a reply that has granted `granted` units;
 * `rest` units are sent again.  Returns the estimate for the other nodes. */
uint64_t set_view(const Notice &notice, Claim claim, const PartAnswer &told, uint64_t granted,
                  uint64_t rest, ngx_msec_t sent) {
    Outbox &outbox = *zone_of(notice).outbox;
    const Policy &policy = told.policy;
    const uint64_t after = told.state.used_after(policy, granted);
    const Guess guess(outbox.seen(notice.hash, sent), notice, told.state.used_after(policy, 0),
                      policy.window_ms, sent);
    outbox.set_seen(notice.hash, guess.seen(after, sent));
    if (is_over(told, sent)) { return 0; }

    /* Units without room in Redis come first, so nothing is admitted until the next reply.  If
     * nodes admitted the units that become free meanwhile, each would exceed the limit. */
    const uint64_t freed = static_cast<uint64_t>(Wide{2} * told.state.limit
                                                 * zone_of(notice).sync_ms / policy.window_ms);
    const uint64_t waiting = rest + outbox.units(notice.hash);
    const uint64_t here = after + waiting + (rest != 0 ? freed + 1 : 0);
    const uint64_t capacity = policy.capacity(told.state.limit);
    const uint64_t guessed = guess.units(capacity - std::min(capacity, here));
    claim.limit = told.state.limit;
    claim.fit_core();
    const uint64_t over = after + waiting - std::min(after + waiting, capacity);
    const uint64_t owed = (granted == 0 ? told.state.debt.units : 0)
                          + (zone_of(notice).settles ? std::min(over, waiting) : 0);
    set_used(claim, here + guessed, owed);
    if (owed == 0) { set_parts(claim, told.state, granted + here - after + guessed); }

    return guessed;
}

/* Returns how many units without room in Redis are sent again.  A key that is always full exceeds
 * its limit by the units of two intervals; units of a burst beyond them are not charged to later
 * windows, unless costs are settled. */
uint64_t again(const RemoteZone &zone, const PartAnswer &told, uint64_t refused) {
    if (zone.settles) { return refused; }

    const Wide two = Wide{2} * told.state.limit * zone.sync_ms;
    return static_cast<uint64_t>(std::min<Wide>(refused, two / told.policy.window_ms + 1));
}

/* Ends the notice of an exiting worker.  Units that other workers have added meanwhile rely on
 * this worker, so it takes them out of the outbox and sends them, with or without success.  The
 * next units then have a sender of their own. */
void leave(Notice &notice, Outbox::Rest rest) {
    Outbox &outbox = *zone_of(notice).outbox;
    uint64_t due_ms;
    rest.look = false;
    (void)end_units(notice, rest, &due_ms);

    notice.taken = outbox.subtract(notice.hash, UINT32_MAX);
    if (notice.taken == 0) {
        free_notice(notice);
        return;
    }

    notice.has_room = false;
    send_notice(notice, true);
}

void told(Ask &ask, const Answer &answer, ngx_msec_t sent) {
    auto &notice = static_cast<Notice &>(ask);
    const Claim claim = ask.parts[0].claim;
    ask.parts[0].claim.set_policy(*ask.parts[0].zone->policy);
    const RemoteZone &zone = zone_of(notice);
    const PartAnswer &told = answer.parts[0];
    const uint64_t interval_ms = zone.sync_ms;
    Outbox::Rest rest = {};
    rest.due_ms = std::max<uint64_t>(sent + interval_ms, uint64_t{ngx_current_msec});
    rest.look_ms = ngx_current_msec + std::max<uint64_t>(interval_ms, kLookMs);
    const auto granted = notice.taken != 0 ? static_cast<uint64_t>(answer.granted) : 0;
    if (!notice.has_room) {
        if (told.is_limited()) { count_unsettled(notice.redis->client, notice.taken - granted); }

        free_notice(notice);
        return;
    }

    if (told.is_limited()) {
        const Verdict next
            = told.state.describe(told.policy, 1, static_cast<uint32_t>(granted), false, false);
        const uint64_t refused = notice.taken - granted;

        rest.units = again(zone, told, refused);
        count_unsettled(notice.redis->client, refused - rest.units);

        if (!is_late(notice)) {
            const uint64_t guess = set_view(notice, claim, told, granted, rest.units, sent);
            /* a rejection looks again, so an idle key needs no more calls */
            rest.look = guess != 0 && notice.taken != 0;
        }

        rest.wait_ms = std::min(next.retry_after_ms, Outbox::kWaitMaxMs);
        rest.look_ms = ngx_current_msec
                       + std::clamp<uint64_t>(next.retry_after_ms, interval_ms,
                                              std::max<uint64_t>(interval_ms, kLookMs));
    }

    notice.owed = zone.settles ? rest.units : 0;
    if (ngx_exiting && rest.units == 0) {
        leave(notice, rest);
    } else {
        go_on(notice, rest);
    }
}

void failed(Errand &errand, Failure failure) {
    auto &notice = static_cast<Notice &>(errand);
    if (failure == Failure::kLost) {
        count_unsettled(notice.redis->client, notice.taken);
        notice.taken = 0;
    }
    keep_units(notice);
}

const AskKind kNotice
    = {{join_script, call_script, script_answered, failed, return_waiters, false}, told};

/* Sends the waiting notices at once. */
void hurry(Client &client) {
    for (Notice &notice : notices_of(client)) {
        if (is_idle(notice)) { send_notice(notice, true); }
    }
}

/* Counts the units of calls under way, or without room in the outbox, as lost. */
void end(Client &client) {
    for (Notice &notice : notices_of(client)) {
        count_unsettled(client, notice.taken);
    }
}

void begin_notices(Client &client) {
    if (client.notices.end != nullptr) { return; }

    notices_of(client).init();
    client.notices.hurry = hurry;
    client.notices.end = end;
}

/* Returns a notice for a claim, or nullptr if there are too many or there is no memory. */
Notice *create_notice(Claim claim) {
    Redis &redis = *remote_of(claim).zone->redis;
    Client &client = redis.client;
    begin_notices(client);
    if (client.notices.bytes >= kNoticeBytesMax) { return nullptr; }

    ask_window(claim);
    claim.limit = remote_of(claim).asked_limit;
    claim.cost = 1;
    claim.verdict = nullptr;
    const ngx_str_t &text = remote_of(claim).key;
    const size_t room = name_bytes(*remote_of(claim).zone, text);
    const size_t text_bytes = text.len < room ? text.len : 0;
    auto *notice = static_cast<Notice *>(
        create_unnamed_ask(redis, {&claim, 1}, kNotice, sizeof(Notice), text_bytes));
    if (notice == nullptr) { return nullptr; }

    /* Requests wait for the digest, so only a text that is longer is replaced at once. */
    if (text_bytes != 0) {
        ngx_str_t &copy = notice->parts[0].key;
        copy.data = reinterpret_cast<u_char *>(notice->parts.end()) + room;
        append(copy.data, view(text));
    } else {
        name(*notice);
    }

    notice->bytes = sizeof(Notice) + sizeof(AskPart) + room + text_bytes;
    init_event<timer_ended>(notice->timer, *notice);
    notice->hash = outbox_hash(claim);
    notices_of(client).push_back(*notice);
    client.notices.bytes += notice->bytes;
    return notice;
}

} // namespace

void sync_redis(const Claim &claim, uint64_t cost) {
    const RemoteZone &zone = *remote_of(claim).zone;
    /* only a settled cost may be higher */
    const uint64_t units = std::min<uint64_t>(cost, UINT32_MAX);
    if (cost > units) { count_unsettled(zone.redis->client, cost - units); }

    const uint64_t now_ms = ngx_current_msec;
    uint64_t due_ms = now_ms;
    const auto added = add_units(zone, outbox_hash(claim), units, &due_ms);
    if (added == Outbox::Added::kDone) { return; }

    const bool has_room = added == Outbox::Added::kSend;
    Notice *notice = create_notice(claim);
    if (notice == nullptr) {
        if (!has_room) { count_unsettled(zone.redis->client, units); }
        return;
    }

    notice->has_room = has_room;
    notice->taken = has_room ? 0 : units;
    if (due_ms <= now_ms) {
        send_notice(*notice, false);
    } else {
        set_timer(*notice, due_ms - now_ms);
    }
}

void unsync_redis(const Claim &claim, uint64_t units) {
    const RemoteZone &zone = *remote_of(claim).zone;
    const uint64_t rest = units - zone.outbox->subtract(outbox_hash(claim), units);
    if (rest == 0) { return; }

    /* without a time, the newest units are refunded first */
    Claim given = claim;
    RemoteClaim remote = remote_of(claim);
    remote.source = Source::kRedis;
    remote.taken = {};
    given.remote = &remote;
    settle_redis(given, -static_cast<int64_t>(rest));
}

} // namespace limit_sliding
