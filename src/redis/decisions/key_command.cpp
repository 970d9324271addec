/* Copyright (C) the limit_sliding authors */

#include "redis/decisions/client.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>

#include "core/policy/shape.hpp"
#include "ngx/strings.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis/shared/leases.hpp"

namespace limit_sliding {

namespace {

/* An ask of one part that a command answers, not the script. */
struct KeyCommandAsk : Ask {
    KeyCommand command;
    std::string_view value; /* rate to be set */
    ngx_msec_t ttl_ms;      /* ms after which Redis removes the rate; 0: never */
};

/* Makes the arguments that forget a key, and returns their number.  `ms` has room for a number,
 * and `own` for three names after the key, with the shape of the key's own window.  If the key may
 * owe, or if nodes may have leases or tell totals, a script deletes the other names as well; in a
 * cluster these are not among the arguments. */
size_t add_forget(const Node &node, const Ask &ask, u_char *ms, u_char *own, Arg *args) {
    const AskPart &part = ask.parts[0];
    const std::string_view key = view(part.key);
    const bool syncs = part.beside == Beside::kTotals, settles = node.redis->settles;
    const bool marks = syncs || Leases::can_serve(*part.claim.policy);
    const std::string_view mark = syncs ? kTotalsSuffix : kMarkSuffix;
    const bool has_own = part.window.is_given();
    const Shape own_shape(with_window(*part.zone->policy, part.window));
    const auto own_name = [&](std::string_view suffix) {
        const u_char *begin = own;
        own = append(append(own, own_shape.text()), suffix);
        return Arg{first(key, base_of(part).size() + 1), view(begin, own - begin)};
    };
    const Arg own_state = own_name({});

    const bool is_script = marks || settles;
    const bool names_all = !is_script || !node.redis->client.nodes.is_cluster();
    const size_t before_keys = is_script ? 3 : 1;
    size_t argc = before_keys;
    args[argc++] = key;
    if (names_all && marks) { args[argc++] = {key, mark}; }
    if (names_all && settles) { args[argc++] = {key, kDebtSuffix}; }
    if (names_all && has_own) { args[argc++] = own_state; }
    if (names_all && settles && has_own) { args[argc++] = own_name(kDebtSuffix); }
    if (names_all && syncs && has_own) { args[argc++] = own_name(kTotalsSuffix); }
    if (!is_script) {
        args[0] = "DEL";
        return argc;
    }

    static constexpr char kDigits[] = "01234567";
    const uint64_t window_ms = std::max(part.claim.policy->window_ms, part.window.ms);
    args[0] = "EVAL";
    args[1] = forget_script();
    args[2] = std::string_view{kDigits + argc - before_keys, 1};
    args[argc++]
        = view(ms, ngx_sprintf(ms, "%uL", marks ? (1 + syncs) * window_ms + kLeaseMs : 0) - ms);
    args[argc++] = mark;
    if (has_own) { args[argc++] = own_state; }

    return argc;
}

bool put(Node &node, ErrandCall &call) {
    const auto &ask = static_cast<const KeyCommandAsk &>(call.errands.front());
    u_char ms[NGX_INT64_LEN], own[3 * (sizeof(Shape) + kTotalsSuffix.size())];
    Arg args[12] = {"DEL", {base_of(ask.parts[0]), kLimitSuffix}};
    size_t argc = 2;

    if (ask.command == KeyCommand::kAskTtl) {
        args[0] = "PTTL";
    } else if (ask.command == KeyCommand::kSetOverride) {
        args[0] = "SET";
        args[2] = ask.value;
        argc = 3;
        if (ask.ttl_ms != 0) {
            args[3] = "PX";
            args[4] = view(ms, ngx_sprintf(ms, "%M", ask.ttl_ms) - ms);
            argc = 5;
        }
    } else if (ask.command == KeyCommand::kForget) {
        argc = add_forget(node, ask, ms, own, args);
    }

    return node.command(call, {args, argc});
}

/* Tells the waiters of a reply, also of an error. */
void answered(Node &node, ErrandCall &call, Reply &reply) {
    if (reply.type == REDIS_REPLY_ERROR) { node.log->write(0, "%s", reply_text(&reply)); }

    auto &ask = static_cast<KeyCommandAsk &>(take_errand(call));
    const bool done = reply.type == REDIS_REPLY_INTEGER || reply.type == REDIS_REPLY_STATUS;
    for (Waiter &waiter : ask.asked) {
        if (ask.command == KeyCommand::kAskTtl) {
            remote_of(waiter.claims[0]).ttl_ms = done ? reply.numbers[0] : -1;
        }

        wake_waiter(waiter, done ? WaitResult::kAdmitted : WaitResult::kRejected);
    }

    ask_done(ask);
}

constexpr AskKind kKeyCommand = {{join_call, put, answered, fail_waiters, return_waiters}, nullptr};

} // namespace

bool send_key_command(Claim &claim, KeyCommand command, std::string_view value, ngx_msec_t ttl_ms,
                      Waiter *waiter) {
    Redis &redis = *remote_of(claim).zone->redis;
    if (redis.client.nodes.is_away()) { return false; }

    auto *ask = create_ask<KeyCommandAsk>({&claim, 1}, kKeyCommand, value.size());
    if (ask == nullptr || if_worth(*ask) == nullptr) { return false; }

    const ngx_str_t &key = ask->parts[0].key;
    u_char *copy = key.data + key.len;
    append(copy, value);
    ask->command = command;
    ask->value = view(copy, value.size());
    ask->ttl_ms = ttl_ms;
    join_ask(*ask, waiter);
    return true;
}

} // namespace limit_sliding
