/* Copyright (C) the limit_sliding authors */

#include "redis/asks/ask.hpp"

#include <iterator>

#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/protocol/key_slot.hpp"

namespace limit_sliding {

namespace {

/* Longer keys have digests, so that clients cannot fill Redis with the texts of keys. */
constexpr size_t kPlainBytesMax = 65535;

/* Returns true if the text of the key is its name in Redis.  A cluster ignores empty braces, so
 * it would not keep the key's state and its limit together. */
bool is_plain(const RemoteZone &zone, const ngx_str_t &text) {
    const Redis &redis = *zone.redis;
    return redis.settings.key_format == KeyFormat::kPlain && text.len <= kPlainBytesMax
           && !(redis.client.nodes.is_cluster() && text.data[0] == '}');
}

/* A digest that this worker has computed: a SHA-1 takes 2,000 instructions. */
struct KnownDigest {
    uint64_t key_hash; /* 0: there is no digest */
    u_char text[kDigestBytes];
};

KnownDigest known_digests[4096];

/* Returns the digest of the key, valid until the next call.  Two keys with one hash are as
 * unlikely as in the zone's own memory.  The hash of a probe is 0, and is not looked up. */
std::string_view digest_of(uint64_t key_hash, const ngx_str_t &text) {
    KnownDigest &known = known_digests[key_hash % std::size(known_digests)];
    if (known.key_hash != key_hash || key_hash == 0) {
        (void)append_digest(known.text, view(text));
        known.key_hash = key_hash;
    }
    return view(known.text, sizeof(known.text));
}

void unlink(Waiter &waiter) {
    Client &client = waiter.ask->redis->client;
    WaiterList::remove(waiter);
    WaitingList::remove(waiter);
    waiter.ask = nullptr;
    if (client.waiting.empty() && client.joined.empty()) {
        /* an exiting worker need not wait for the timer */
        client.deadline.cancelable = 1;
    }
}

/* Ends a wait that took too long.  A unit that was not sent yet is taken from the ask, because
 * on_error decides it. */
void time_out(Waiter &waiter) {
    Ask &ask = *waiter.ask;
    const Redis &redis = *ask.redis;
    ngx_msec_t since = waiter.until - redis.settings.timeout;
    if (!ask.to->is_ready() && static_cast<ngx_msec_int_t>(since - redis.client.failed) >= 0) {
        /* all waits for one attempt to connect count once */
        node_failed(*ask.to);
        ask.to->attempt_failed = true;
    }

    if (!waiter.asked) { ask.units--; }

    wake_waiter(waiter, WaitResult::kFailed);
    if (ask.units == 0 && (ask.state == ErrandState::kDue || ask.state == ErrandState::kIdle)) {
        withdraw(ask);
        ask_done(ask);
    }
}

} // namespace

Policy known_policy(const AskPart &part) {
    const OverrideCache &last = *part.zone->last_overrides;
    const bool has_window = last.has_windows() || part.window.is_given();
    const Override own = has_window ? last.find(part.claim.key_hash()) : Override{};
    return with_window(*part.zone->policy, own.is_set() ? own.window : part.window);
}

/* A hash that two asks share is as unlikely as in the zone's own memory. */
Ask *find_ask(Redis &redis, uint64_t hash) {
    ngx_rbtree_node_t *node = redis.client.asks.root;
    while (node != &redis.client.sentinel) {
        if (node->key == hash) { return static_cast<Ask *>(node); }

        node = hash < node->key ? node->left : node->right;
    }
    return nullptr;
}

size_t name_bytes(const RemoteZone &zone, const ngx_str_t &text) {
    return zone.prefix.len + (is_plain(zone, text) ? text.len : kDigestBytes) + zone.shape.len;
}

Ask *create_unnamed_ask(Span<Claim> claims, const AskKind &kind, size_t ask_bytes, size_t bytes) {
    bytes += ask_bytes + claims.size() * sizeof(AskPart);
    for (const Claim &claim : claims) {
        bytes += name_bytes(*remote_of(claim).zone, remote_of(claim).key);
    }

    auto *place = static_cast<u_char *>(ngx_alloc(bytes, ngx_cycle->log));
    if (place == nullptr) { return nullptr; }

    ngx_memzero(place, ask_bytes);
    auto *ask = reinterpret_cast<Ask *>(place);
    ask->kind = &kind;
    ask->redis = remote_of(claims[0]).zone->redis;
    ask->parts = {reinterpret_cast<AskPart *>(place + ask_bytes), claims.size()};
    ask->waiters.init();
    ask->asked.init();
    for (size_t i = 0; i < claims.size(); i++) {
        const RemoteClaim &remote = remote_of(claims[i]);
        AskPart &part = ask->parts[i];
        const Policy &policy = *claims[i].policy;
        Window window = policy.salt != 0 ? policy.window() : Window{};
        part = {claims[i], remote.zone, window, remote.key, 0, i};
        part.beside = remote.zone->outbox != nullptr ? Beside::kTotals : Beside::kNothing;
        part.claim.set_policy(*remote.zone->policy);
        part.pace = remote.pace != 0 ? remote.pace : part.claim.limit;
    }

    return ask;
}

/* A name is "PREFIXZONE:{KEY}:SHAPE", where KEY is the text of the key, or its digest. */
void name_keys(Ask &ask) {
    const bool is_cluster = ask.redis->client.nodes.is_cluster();
    auto *p = reinterpret_cast<u_char *>(ask.parts.end());
    for (AskPart &part : ask.parts) {
        const RemoteZone &zone = *part.zone;
        u_char *end = append(p, view(zone.prefix));
        end = append(end, is_plain(zone, part.key) ? view(part.key)
                                                   : digest_of(part.claim.key_hash(), part.key));
        end = append(end, view(zone.shape));
        part.key = {static_cast<size_t>(end - p), p};
        part.slot = is_cluster ? key_slot(view(part.key)) : 0;
        p = end;

        if (part.slot != ask.parts[0].slot) { ask.slot = kMixedSlots; }
    }

    if (ask.slot != kMixedSlots) { ask.slot = ask.parts[0].slot; }
}

Ask *if_worth(Ask &ask) {
    if (ask.redis->client.nodes.is_worth(ask.slot)) { return &ask; }

    if (ask.state == ErrandState::kIdle) { ask_done(ask); }
    return nullptr;
}

Ask *get_ask(Span<Claim> claims, const AskKind &kind) {
    Redis &redis = *remote_of(claims[0]).zone->redis;
    if (is_away(redis)) { return nullptr; }

    for (Claim &claim : claims) {
        ask_window(claim);
    }

    uint64_t hash = ask_hash(claims.begin(), claims.size());
    Ask *ask = find_ask(redis, hash);
    if (ask == nullptr) {
        ask = create_ask(claims, kind);
        if (ask == nullptr || ask->slot == kMixedSlots) { return ask; }

        share_ask(*ask, hash);
    }
    return if_worth(*ask);
}

void share_ask(Ask &ask, uint64_t hash) {
    ask.shared = true;
    ask.key = hash;
    ngx_rbtree_insert(&ask.redis->client.asks, &ask);
}

void ask_done(Ask &ask) {
    const AskKind &kind = kind_of(ask);
    if (kind.rest != nullptr) {
        if (kind.rest(ask)) { return; }
    } else if (ask.units) {
        /* the last reply may have been about another window */
        for (AskPart &part : ask.parts) {
            part.claim.set_policy(*part.zone->policy);
        }

        (kind.resume != nullptr ? send_patiently : send)(ask);
        return;
    }

    Client &client = ask.redis->client;
    if (ask.shared) { ngx_rbtree_delete(&client.asks, &ask); }

    if (ask.kept) { client.settling.timer.cancelable = --client.settling.nasks == 0; }

    ngx_free(&ask);
}

void join_ask(Ask &ask, Waiter *waiter) {
    if (ask.state == ErrandState::kIdle) { send(ask); }

    add_unit(ask, waiter);
}

void add_unit(Ask &ask, Waiter *waiter) {
    ask.units++;
    if (waiter == nullptr) { return; }

    waiter->ask = &ask;
    waiter->asked = false;
    ask.waiters.push_back(*waiter);
    ask.redis->client.joined.push_back(*waiter);
    ask.to->post_flush();
}

void keep_worker(Ask &ask) {
    const Settings &settings = ask.redis->settings;
    Settling &settling = ask.redis->client.settling;
    const ngx_msec_t ms = settings.connect_timeout + settings.timeout;
    settling.nasks += !ask.kept;
    ask.kept = true;
    settling.until = ngx_current_msec + ms;
    settling.timer.cancelable = 0;
    if (!settling.timer.timer_set) { ngx_add_timer(&settling.timer, ms); }
}

/* In a cluster, where asks hardly ever share a slot, a call has one ask, so that a redirection is
 * about one slot. */
bool join_call(ErrandCall &call, Errand &errand) {
    auto &ask = static_cast<Ask &>(errand);
    const bool is_alone
        = kind_of(ask).take_answer == nullptr || ask.redis->client.nodes.is_cluster();
    const size_t most = is_alone ? 1 : kErrandsPerCall;
    if (call.nerrands == most || call.nclaims + ask.parts.size() > kClaimsPerCall) { return false; }

    call.nclaims += ask.parts.size();

    ngx_uint_t turn = 0;
    while (!ask.waiters.empty()) {
        Waiter &waiter = ask.waiters.pop_front();
        ask.asked.push_back(waiter);
        waiter.asked = true;
        waiter.turn = turn++;
    }

    ask.asked_units = ask.units;
    ask.units = 0;
    return true;
}

void return_waiters(Errand &errand) {
    auto &ask = static_cast<Ask &>(errand);
    while (!ask.asked.empty()) {
        Waiter &waiter = ask.asked.pop_back();
        waiter.asked = false;
        ask.waiters.push_front(waiter);
    }

    ask.units += ask.asked_units - ask.leased_units;
    ask.asked_units = 0;
    ask.leased_units = 0;
}

void fail_waiters(Errand &errand, Failure failure) {
    auto &ask = static_cast<Ask &>(errand);
    const bool is_unsent = failure == Failure::kUnsent;
    for (Waiter &waiter : is_unsent ? ask.waiters : ask.asked) {
        const bool is_refused = failure == Failure::kRefused && is_settled(waiter.claims[0]);
        wake_waiter(waiter, is_refused ? WaitResult::kRejected : WaitResult::kFailed);
    }

    if (is_unsent) { ask.units = 0; }

    ask_done(ask);
}

void wake_waiter(Waiter &waiter, WaitResult result) {
    waiter.result = result;
    unlink(waiter);
    post_event(waiter.event);
}

void end_waits(Client &client) {
    for (bool has_grace = true; !client.waiting.empty(); has_grace = false) {
        Waiter &first = client.waiting.front();
        const ngx_msec_int_t left = ms_until(first.until);
        if (left > 0) {
            ngx_add_timer(&client.deadline, static_cast<ngx_msec_t>(left));
            return;
        }

        const ngx_msec_t clock_age_ms = first.ask->redis->settings.clock_age_ms;
        if (has_grace && client.grace.is_given(client.deadline, first.until, clock_age_ms)) {
            return;
        }

        time_out(first);
    }
}

void leave_ask(Waiter *waiter) {
    if (waiter->ask) { unlink(*waiter); }

    if (waiter->part) {
        *waiter->part = nullptr;
        waiter->part = nullptr;
    }

    unpost_event(waiter->event);
}

} // namespace limit_sliding
