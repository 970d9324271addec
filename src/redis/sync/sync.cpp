/* Copyright (C) the limit_sliding authors */

#include "redis/sync/sync.hpp"

#include <algorithm>

#include "core/limiter/limiter.hpp"
#include "core/rules/counter_kinds.hpp"
#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/asks/ask.hpp"
#include "redis/asks/script_call.hpp"
#include "redis/settlement/settlement.hpp"
#include "redis/shared/outbox.hpp"

namespace limit_sliding {

namespace {

/* The ask, of one part, by which this worker must soon report a key to Redis.  The units are in the
 * outbox, in shared memory.  Units for which it has no room are in `report`: they are reported
 * once, and belong to no node.  The ask is idle until the units are due. */
struct Notice : Ask {
    ngx_event_t timer;   /* until the units are due, then until the call must be over */
    ngx_queue_t in_list; /* in the list of the client */
    size_t bytes;        /* memory of the notice */
    uint64_t hash;       /* of the key in the outbox */
    uint64_t owed;       /* units of settled costs for which Redis had no room at its last reply */
    uint64_t again;      /* units of the report that Redis had no room for in the last one */
    uint64_t past;       /* units of the report that have left the window */
    Outbox::Report report; /* under way; life 0: units without room in the outbox */
    bool is_last;          /* an exiting worker sends nothing after the report */
    bool is_named;         /* name_keys() was called */
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

/* Time in ms that a call may take beyond the timeouts of its connection and its reply, before
 * another worker reports the key. */
constexpr uint64_t kGraceMs = 2000;

/* Number of windows in which the pace of a key decays to 0. */
constexpr uint64_t kPaceWindows = 16;

/* The demand of other nodes is learned from intervals with at least this many units. */
constexpr uint64_t kGuessMin = 8;

NoticeList &notices_of(Client &client) {
    return reinterpret_cast<NoticeList &>(client.notices.list);
}

const RemoteZone &zone_of(const Notice &notice) { return *notice.parts[0].zone; }

uint64_t outbox_hash(const Claim &claim) {
    const RemoteClaim &remote = remote_of(claim);
    return claim.key_hash() ^ (remote.asked != nullptr ? remote.asked : claim.policy)->salt;
}

bool has_room(const Notice &notice) { return notice.report.life != 0; }

uint64_t random_life() {
    const auto bits
        = static_cast<uint64_t>(ngx_random()) << 24 ^ static_cast<uint64_t>(ngx_random());
    return (bits & ((uint64_t{1} << 48) - 1)) | 1;
}

void free_notice(Notice &notice) {
    stop_timer(notice.timer);
    NoticeList::remove(notice);
    notice.redis->client.notices.bytes -= notice.bytes;
    ngx_free(&notice);
}

void send_notice(Notice &notice);

/* Sends the notice at once, unless it is under way. */
void send_idle(Notice &notice) {
    if (notice.state == ErrandState::kIdle) { send_notice(notice); }
}

void name(Notice &notice) {
    if (!notice.is_named) { name_keys(notice); }

    notice.is_named = true;
}

/* Ends a report.  The notice ends, too, or waits until the rest is due.  An exiting worker sends
 * what other workers have added meanwhile, because they rely on this one, but not again what Redis
 * had no room for, and leaves the rest to the next worker that adds units. */
void go_on(Notice &notice, Outbox::Rest rest, uint64_t again) {
    auto due_ms = uint64_t{ngx_current_msec};
    rest.leaves = ngx_exiting;
    const auto next
        = zone_of(notice).outbox->done(notice.hash, ngx_current_msec, notice.report, rest, &due_ms);
    notice.again = again;
    if (next != Outbox::Added::kSend || (ngx_exiting && (notice.is_last || again != 0))) {
        free_notice(notice);
    } else if (ngx_exiting) {
        notice.is_last = true;
        send_notice(notice);
    } else {
        restart_timer(notice.timer, due_ms - ngx_current_msec);
    }
}

/* Keeps units that could not be sent, or may not have been counted.  Units without room in the
 * outbox are lost. */
void keep_units(Notice &notice) {
    const uint64_t wait_ms = std::max<uint64_t>(zone_of(notice).sync_ms, kRetryMs);
    const uint64_t next_ms = ngx_current_msec + wait_ms;
    if (has_room(notice)) {
        notice.is_last = ngx_exiting;
        go_on(notice, {0, false, next_ms, wait_ms, next_ms, false}, notice.again);
        return;
    }

    count_unsettled(notice.redis->client, static_cast<uint64_t>(notice.report.units));
    free_notice(notice);
}

/* Returns the used units of the key in this node's memory. */
uint64_t used_here(Claim claim) {
    claim.purpose = Purpose::kLook;
    claim.cost = 0;
    claim.standing = Standing::kHere;
    (void)acquire(&claim, 1, ngx_current_msec);
    return claim.policy->used(claim.describe(ngx_current_msec));
}

/* Returns the units of the report that have left the window while Redis was away: more than are
 * used here and wait for later windows. */
uint64_t past_units(const Notice &notice) {
    const RemoteZone &zone = zone_of(notice);
    const Policy policy = known_policy(notice.parts[0]);
    Claim claim = notice.parts[0].claim;
    claim.set_policy(policy);

    const auto seen = zone.outbox->seen(notice.hash, ngx_current_msec);
    const bool is_past = ngx_current_msec - seen.at_ms >= policy.window_ms;
    if (notice.report.units <= 0 || (seen.at_ms != 0 && !is_past)) { return 0; }

    const Override own = zone.last_overrides->find(claim.key_hash());
    if (terms_of(own) == Terms::kUnlimited) { return 0; }

    claim.limit = limit_under(own, claim.limit);
    claim.fit_core();
    const auto units = static_cast<uint64_t>(notice.report.units);
    return units - std::min(units, used_here(claim) + notice.owed);
}

/* Reports the units if they are due.  An exiting worker reports them at once. */
void send_notice(Notice &notice) {
    if (must_wait(notice)) { return; }

    const RemoteZone &zone = zone_of(notice);
    Outbox::Report &report = notice.report;
    const Settings &settings = notice.redis->settings;
    const uint64_t most_ms = settings.connect_timeout + settings.timeout + kGraceMs;
    uint64_t due_ms = 0;
    const auto took = has_room(notice)
                          ? zone.outbox->take(notice.hash, ngx_current_msec, most_ms, ngx_exiting,
                                              random_life(), &report, &due_ms)
                          : Outbox::Took::kTaken;

    if (took == Outbox::Took::kNothing) {
        free_notice(notice);
        return;
    }

    if (took == Outbox::Took::kLater) {
        restart_timer(notice.timer, due_ms - ngx_current_msec);
        return;
    }

    name(notice);
    if (is_away(*notice.redis) || !notice.redis->client.nodes.is_worth(notice.slot)) {
        keep_units(notice);
        return;
    }

    const uint64_t past = notice.past = has_room(notice) ? past_units(notice) : 0;
    const auto units = static_cast<uint64_t>(std::clamp<int64_t>(report.units, 0, UINT32_MAX));
    report.units = std::min<int64_t>(report.units, UINT32_MAX);
    AskPart &part = notice.parts[0];
    part.totals = {report.life, report.acked, report.acked + report.units};
    part.claim.purpose = units > past ? Purpose::kConsume : Purpose::kLook;
    notice.units = units > past ? units - past : 1;
    /* an exiting worker waits for the reply */
    restart_timer(notice.timer, most_ms);
    send_patiently(notice);
}

/* Estimates how many units other nodes consume until the next reply, or have consumed and not
 * reported yet, if all nodes together might exceed the limit.  Other nodes keep their share, in
 * proportion to this node's own use.  Two successive replies tell how many units all nodes
 * admitted; the peak decays within kPaceWindows. */
class Guess {
public:
    Guess(const Outbox::Seen &last, const Notice &notice, uint64_t others, uint64_t window_ms,
          ngx_msec_t sent)
        : share_(last.share), pace_(last.pace) {
        const auto reported = static_cast<uint64_t>(std::max<int64_t>(notice.report.units, 0));
        own_ = reported - std::min(reported, notice.again);
        if (last.at_ms == 0) { return; }

        const uint64_t elapsed_ms = std::max<uint64_t>(sent - last.at_ms, 1);
        others_ = others;

        /* from absolute times, so that no fraction is lost each time */
        const auto forgotten = [&](uint64_t until_ms) {
            return static_cast<uint64_t>(Wide{pace_} * until_ms / (kPaceWindows * window_ms));
        };
        pace_ -= std::min(pace_, forgotten(last.at_ms + elapsed_ms) - forgotten(last.at_ms));

        const uint64_t all = own_ + others_;
        if (all < kGuessMin) { return; }

        /* the share is a mean of intervals, weighted by their units */
        const uint64_t share = others_ * 256 / all;
        const uint64_t pace = all * std::min(zone_of(notice).sync_ms, elapsed_ms) / elapsed_ms;
        is_learned_ = true;
        pace_ = std::max(pace_, pace);
        share_ = share_ == 0 || pace_ == 0
                     ? share
                     : (share_ * (2 * pace_ - pace) + share * pace + pace_) / (2 * pace_);
    }

    /* Returns the estimated units, `room` at most. */
    uint64_t units(uint64_t room) const {
        if (4 * pace_ < room || share_ == 0) { return 0; }

        const uint64_t expected = own_ * share_ / (256 - std::min<uint64_t>(share_, 255));
        const uint64_t untold
            = is_learned_ ? std::min(expected - std::min(expected, others_), room) : 0;
        return untold + (room - untold) * share_ / 256;
    }

    Outbox::Seen seen(int64_t others, uint64_t added, uint64_t reserved, ngx_msec_t sent) const {
        return {others, added, reserved, sent, share_, pace_};
    }

private:
    uint64_t share_; /* share of other nodes, in 1/256 */
    uint64_t pace_;  /* peak of the units of all nodes in an interval */
    uint64_t own_;   /* units that this node has admitted since the last report */
    uint64_t others_ = 0;
    bool is_learned_ = false;
};

/* Adds units to the key in this node's memory, of which `owed` are left to later windows: to the
 * parts in which they are in Redis, if this is a counter; the newest part has `newest` more units
 * now than in the reply.  Returns how many were added. */
uint64_t raise(const Claim &claim, const PartAnswer &answer, uint64_t newest, uint64_t units,
               uint64_t used, uint64_t owed) {
    const RemoteState &state = answer.state;
    if (owed == 0 && claim.policy->algorithm == Algorithm::kCounter) {
        const auto parts = static_cast<uint64_t>(state.values[0]);
        uint64_t count[kCounterPartsMax + 1];
        if (parts <= kCounterPartsMax) {
            std::copy_n(state.values + 3, parts + 1, count);
            count[parts] += newest;
            if (raise_counts(claim, units, parts, static_cast<uint64_t>(state.values[1]), count,
                             state.now_ms, ngx_current_msec)) {
                return units;
            }
        }
    }

    /* Further units over the limit would be a debt as well.  Only the small one of a bucket has run
     * off when the next request is admitted. */
    if (!claim.policy->is_bucket()) {
        const uint64_t most = claim.limit + owed;
        units = std::min(units, most - std::min(most, used));
    }

    return units - charge(claim, units, ngx_current_msec);
}

/* Returns the last reply, with the units of other nodes that still count here at least: of a
 * bucket, what has not run off; else the reserved ones, and a falling part of those that were added
 * at any time before. */
Outbox::Seen seen_now(const Outbox &outbox, const Notice &notice, const Claim &claim,
                      ngx_msec_t sent) {
    const uint64_t now_ms = ngx_current_msec, window_ms = claim.policy->window_ms;
    Outbox::Seen last = outbox.seen(notice.hash, sent);
    if (last.at_ms == 0 || is_past(claim, last.at_ms, now_ms)) {
        last.reserved = last.added = 0;
        return last;
    }

    const uint64_t elapsed_ms = now_ms - last.at_ms;
    const auto less = [&](uint64_t units, Wide gone) {
        return units - static_cast<uint64_t>(std::min<Wide>(units, gone / window_ms));
    };
    if (claim.policy->is_bucket()) {
        last.reserved = less(last.reserved, Wide{claim.limit} * elapsed_ms);
        last.added = less(last.added, Wide{claim.limit} * elapsed_ms);
    } else if (claim.policy->algorithm != Algorithm::kFixed) {
        last.added = less(last.added, Wide{last.added} * elapsed_ms + window_ms - 1);
    }

    return last;
}

/* Returns true if a fixed window has ended in Redis since the last reply.  What others used in it
 * does not count any more, though this node's window may go on. */
bool is_other_window(const PartAnswer &answer, const Outbox::Seen &last, ngx_msec_t sent) {
    const uint64_t now_ms = answer.state.now_ms, ago_ms = sent - last.at_ms;
    return answer.policy.algorithm == Algorithm::kFixed
           && answer.policy.window_number(now_ms - std::min(now_ms, ago_ms))
                  != answer.policy.window_number(now_ms);
}

/* Returns true if the key was forgotten since the last reply.  What was admitted before does not
 * count any more. */
bool is_forgotten(const PartAnswer &answer, const Outbox::Seen &last, ngx_msec_t sent) {
    return answer.forgotten > 1
           && (last.at_ms == 0 || static_cast<uint64_t>(answer.forgotten) - 2 <= sent - last.at_ms);
}

/* Adds what other nodes use to the key in this node's memory, by a reply that has granted `granted`
 * units; `rest` units are sent again, and Redis does not know of `untold` units.  The node forgets
 * nothing that it has admitted itself: units are only taken back that others have given back, or
 * that were reserved for others.  Returns the newly reserved units. */
uint64_t set_view(const Notice &notice, Claim claim, const PartAnswer &answer, uint64_t granted,
                  uint64_t rest, int64_t untold, ngx_msec_t sent) {
    Outbox &outbox = *zone_of(notice).outbox;
    const Policy &policy = answer.policy;
    claim.limit = answer.state.limit;
    claim.fit_core();
    const Outbox::Seen last = seen_now(outbox, notice, claim, sent);
    const bool is_known = last.at_ms != 0 && answer.forgotten == 0;
    const int64_t more = is_known ? answer.others - last.others : 0;
    const Guess guess(last, notice, static_cast<uint64_t>(std::max<int64_t>(more, 0)),
                      policy.window_ms, sent);

    /* Units without room in Redis come first, so nothing is admitted until the next reply.  If
     * nodes admitted the units that become free meanwhile, each would exceed the limit. */
    const auto freed = static_cast<uint64_t>(Wide{2} * answer.state.limit * zone_of(notice).sync_ms
                                             / policy.window_ms);
    const auto after = static_cast<int64_t>(answer.state.used_after(policy, granted));
    const auto capacity = static_cast<int64_t>(policy.capacity(answer.state.limit));
    const int64_t here = after + untold;
    const int64_t over = std::max<int64_t>(here - capacity, 0);
    const uint64_t blocked = rest != 0 ? freed + 1 : 0;
    const int64_t room = capacity - here - static_cast<int64_t>(blocked);
    const uint64_t reserved
        = guess.units(static_cast<uint64_t>(std::max<int64_t>(room, 0))) + blocked;
    const auto used = static_cast<int64_t>(used_here(claim));
    const int64_t own = used - std::min(used, static_cast<int64_t>(last.reserved));
    const auto added = static_cast<int64_t>(last.added);
    const int64_t gone = is_known && is_other_window(answer, last, sent)
                             ? added
                             : std::clamp<int64_t>(-more, 0, added);
    int64_t next = std::max({here, own - gone, int64_t{0}});
    if (is_forgotten(answer, last, sent)) {
        next = std::max<int64_t>(untold + notice.report.units, 0);
    }

    const auto counted = static_cast<uint64_t>(std::max<int64_t>(added + next - own, 0));
    next += static_cast<int64_t>(reserved);
    const uint64_t owed
        = (granted == 0 ? answer.state.debt.units : 0)
          + (zone_of(notice).settles ? static_cast<uint64_t>(std::clamp<int64_t>(untold, 0, over))
                                     : 0);
    uint64_t missing = 0;
    if (next > used) {
        const auto units = static_cast<uint64_t>(next - used);
        const auto newest
            = static_cast<uint64_t>(std::max<int64_t>(untold, 0)) + granted + reserved;
        missing = units - raise(claim, answer, newest, units, static_cast<uint64_t>(used), owed);
    } else {
        give_back_older(claim, static_cast<uint64_t>(used - next), last.at_ms, ngx_current_msec);
    }

    /* what found no room here is not taken back later: first of the reserved units */
    const uint64_t unreserved = std::min(reserved, missing);
    const uint64_t uncounted = std::min(counted, missing - unreserved);
    outbox.set_seen(notice.hash,
                    guess.seen(answer.others, counted - uncounted, reserved - unreserved, sent));
    return reserved;
}

/* Returns how many units without room in Redis are sent again.  A key that is always full exceeds
 * its limit by the units of two intervals; units of a burst beyond them are not charged to later
 * windows, unless costs are settled. */
uint64_t again(const RemoteZone &zone, const PartAnswer &answer, uint64_t refused) {
    if (zone.settles) { return refused; }

    const Wide two = Wide{2} * answer.state.limit * zone.sync_ms;
    return static_cast<uint64_t>(std::min<Wide>(refused, two / answer.policy.window_ms + 1));
}

void take_answer(Ask &ask, const Answer &answers, ngx_msec_t sent) {
    auto &notice = static_cast<Notice &>(ask);
    AskPart &part = ask.parts[0];
    const Claim claim = part.claim;
    part.claim.set_policy(*part.zone->policy);
    const RemoteZone &zone = zone_of(notice);
    const Client &client = notice.redis->client;
    const PartAnswer &answer = answers.parts[0];
    const Outbox::Report &report = notice.report;
    const uint64_t interval_ms = zone.sync_ms;
    const bool consumes = claim.purpose == Purpose::kConsume;
    const auto granted = consumes ? static_cast<uint64_t>(answers.granted) : 0;
    if (!has_room(notice)) {
        if (answer.terms == Terms::kLimited) {
            count_unsettled(client, static_cast<uint64_t>(report.units) - granted);
        }

        free_notice(notice);
        return;
    }

    Outbox::Rest rest = {};
    uint64_t kept = 0;
    rest.due_ms = std::max<uint64_t>(sent + interval_ms, uint64_t{ngx_current_msec});
    rest.look_ms = ngx_current_msec + std::max<uint64_t>(interval_ms, kLookMs);
    const bool is_acknowledged = zone.outbox->acknowledge(notice.hash, report, answer.total);
    if (is_acknowledged) { rest.settled = report.units; }

    if (answer.terms == Terms::kLimited) {
        const Verdict next
            = answer.state.describe(answer.policy, 1, static_cast<uint32_t>(granted), false, false);
        if (is_acknowledged) {
            const int64_t most = consumes ? static_cast<int64_t>(ask.asked_units) : 0;
            const auto refused = static_cast<uint64_t>(
                std::clamp<int64_t>(part.totals.total - answer.total, 0, most));

            kept = again(zone, answer, refused);
            rest.settled -= static_cast<int64_t>(kept);
            count_unsettled(client, refused - kept + notice.past);

            const int64_t untold = zone.outbox->units(notice.hash) - rest.settled;
            const uint64_t reserved = set_view(notice, claim, answer, granted, kept, untold, sent);
            /* a rejection looks again, so an idle key needs no more calls */
            rest.look = reserved != 0 && consumes;
        }

        rest.wait_ms = std::min(next.retry_after_ms, Outbox::kWaitMaxMs);
        rest.look_ms = ngx_current_msec
                       + std::clamp<uint64_t>(next.retry_after_ms, interval_ms,
                                              std::max<uint64_t>(interval_ms, kLookMs));
    }

    notice.owed = zone.settles ? kept : 0;
    go_on(notice, rest, kept);
}

const AskKind kNotice
    = {{join_call, call_script, script_answered,
        [](Errand &errand, Failure) { keep_units(static_cast<Notice &>(errand)); }, return_waiters,
        [](Errand &errand) { send_notice(static_cast<Notice &>(errand)); }},
       take_answer};

/* Sends the notices that are not due yet. */
void hurry(Client &client) {
    for (Notice &notice : notices_of(client)) {
        send_idle(notice);
    }
}

/* Counts the units without room in the outbox as lost. */
void end(Client &client) {
    for (Notice &notice : notices_of(client)) {
        if (!has_room(notice)) {
            count_unsettled(client, static_cast<uint64_t>(notice.report.units));
        }
    }
}

/* Returns a notice for a claim, or nullptr if there are too many or there is no memory. */
Notice *create_notice(Claim claim) {
    Redis &redis = *remote_of(claim).zone->redis;
    Client &client = redis.client;
    if (client.notices.end == nullptr) {
        notices_of(client).init();
        client.notices.hurry = hurry;
        client.notices.end = end;
    }

    if (client.notices.bytes >= kNoticeBytesMax) { return nullptr; }

    ask_window(claim);
    claim.limit = remote_of(claim).asked_limit;
    claim.cost = 1;
    claim.standing = Standing::kHere;
    const ngx_str_t &text = remote_of(claim).key;
    const size_t room = name_bytes(*remote_of(claim).zone, text);
    const size_t text_bytes = text.len < room ? text.len : 0;
    auto *notice = static_cast<Notice *>(
        create_unnamed_ask({&claim, 1}, kNotice, sizeof(Notice), text_bytes));
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
    init_event<send_idle>(notice->timer, *notice);
    notice->hash = outbox_hash(claim);
    notices_of(client).push_back(*notice);
    client.notices.bytes += notice->bytes;
    return notice;
}

} // namespace

void sync_redis(const Claim &claim, int64_t units) {
    const RemoteZone &zone = *remote_of(claim).zone;
    /* only a settled cost may be higher */
    const int64_t added = std::clamp<int64_t>(units, -int64_t{UINT32_MAX}, UINT32_MAX);
    if (units > added) {
        count_unsettled(zone.redis->client, static_cast<uint64_t>(units - added));
    }

    const uint64_t hash = outbox_hash(claim), now_ms = ngx_current_msec;
    uint64_t due_ms = now_ms, evicted = 0;
    const auto result = added != 0
                            ? zone.outbox->add(hash, added, now_ms, zone.sync_ms, &due_ms, &evicted)
                            : zone.outbox->look(hash, now_ms, zone.sync_ms, &due_ms, &evicted);
    if (evicted != 0) { count_unsettled(zone.redis->client, evicted); }

    const bool has_room = result == Outbox::Added::kSend;
    if (result == Outbox::Added::kDone || (!has_room && added <= 0)) { return; }

    Notice *notice = create_notice(claim);
    if (notice == nullptr) {
        if (!has_room) { count_unsettled(zone.redis->client, static_cast<uint64_t>(added)); }
        return;
    }

    notice->report = {has_room ? uint64_t{1} : 0, 0, has_room ? 0 : added};
    if (due_ms <= now_ms) {
        send_notice(*notice);
    } else {
        restart_timer(notice->timer, due_ms - now_ms);
    }
}

} // namespace limit_sliding
