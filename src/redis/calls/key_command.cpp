/* Copyright (C) the limit_sliding authors */

#include "redis/calls/key_command.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>

#include "ngx/strings.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis/shared/leases.hpp"

namespace limit_sliding {

namespace {

/* The longest suffix of a name: of the debt in a key's own window. */
constexpr size_t kSuffixMax = sizeof(":4294967295:debt");

/* Makes the arguments that forget a key, and returns how many they are.  `ms` has room for a
 * number, and `own` for a suffix.  If the key may owe, or if nodes may have leases, a script
 * knows the other names; in a cluster these are not named beside the first one. */
size_t add_forget(const Node &node, const Ask &ask, u_char *ms, u_char *own, Arg *args) {
    const AskPart &part = ask.parts[0];
    const std::string_view key = view(part.key);
    const bool leases = Leases::can_serve(*part.claim.policy), settles = node.redis->settles;

    /* the state of the key's own window, and the debt there */
    std::string_view own_state, own_debt;
    if (part.window.is_given()) {
        u_char *end = ngx_sprintf(own, ":%uD", part.window.code());
        own_state = view(own, end - own);
        own_debt = view(own, append(end, kDebtSuffix) - own);
    }

    const bool is_script = leases || settles;
    const bool names_all = !is_script || !node.redis->client.nodes.is_cluster();
    const size_t first = is_script ? 3 : 1;
    size_t argc = first;
    args[argc++] = key;
    if (names_all && leases) { args[argc++] = {key, kMarkSuffix}; }
    if (names_all && settles) { args[argc++] = {key, kDebtSuffix}; }
    if (names_all && !own_state.empty()) { args[argc++] = {key, own_state}; }
    if (names_all && settles && !own_state.empty()) { args[argc++] = {key, own_debt}; }
    if (!is_script) {
        args[0] = "DEL";
        return argc;
    }

    static constexpr char kDigits[] = "012345";
    const uint64_t window_ms = std::max(part.claim.policy->window_ms, part.window.ms);
    args[0] = "EVAL";
    args[1] = forget_script();
    args[2] = std::string_view{kDigits + argc - first, 1};
    args[argc++] = view(ms, ngx_sprintf(ms, "%uL", leases ? window_ms + kLeaseMs : 0) - ms);
    if (!own_state.empty()) { args[argc++] = own_state; }

    return argc;
}

/* The handler of these calls.  An error is an answer, if it is no redirection. */
void command_answered(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<AskCall &>(to);
    if (reply == nullptr) {
        fail_call(node, call);
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        if (resend_call(node, call, *reply)) { return; }

        node.log->write(0, "%s", reply_text(reply));
    }

    Ask &ask = call.asks.pop_front();
    bool done = reply->type == REDIS_REPLY_INTEGER || reply->type == REDIS_REPLY_STATUS;
    for (Waiter &waiter : ask.asked) {
        if (ask.order.command == KeyCommand::kAskTtl) {
            remote_of(waiter.claims[0]).ttl_ms = done ? reply->numbers[0] : -1;
        }

        tell_waiter(waiter, done ? Told::kAdmitted : Told::kRejected);
    }

    ask_done(ask);
    end_call(node, call);
}

} // namespace

bool send_key_command(Claim *claim, KeyCommand command, ngx_str_t *value, ngx_msec_t ttl_ms,
                      Waiter *waiter) {
    Redis &redis = *remote_of(*claim).zone->redis;
    Nodes &nodes = redis.client.nodes;
    if (nodes.is_away()) { return false; }

    Ask *ask = create_ask(redis, {claim, 1}, value->len);
    if (ask == nullptr) { return false; }

    u_char *text = ask->parts[0].key.data + ask->parts[0].key.len;
    append(text, view(*value));
    ask->order = {command, {value->len, text}, ttl_ms};

    if (!nodes.is_worth(ask->slot)) {
        ngx_free(ask);
        return false;
    }

    join_ask(*ask, waiter);
    return true;
}

bool call_key_command(Node &node, AskCall &call) {
    const Ask &ask = call.asks.front();
    const AskPart &part = ask.parts[0];
    u_char ms[NGX_INT64_LEN], own[kSuffixMax];
    Arg args[10] = {"DEL", {view(part.key), kLimitSuffix}};
    size_t argc = 2;

    if (ask.order.command == KeyCommand::kAskTtl) {
        args[0] = "PTTL";
    } else if (ask.order.command == KeyCommand::kSetLimit) {
        args[0] = "SET";
        args[2] = view(ask.order.text);
        argc = 3;
        if (ask.order.ttl_ms != 0) {
            args[3] = "PX";
            args[4] = view(ms, ngx_sprintf(ms, "%M", ask.order.ttl_ms) - ms);
            argc = 5;
        }
    } else if (ask.order.command == KeyCommand::kForget) {
        argc = add_forget(node, ask, ms, own, args);
    }

    call.handler = command_answered;
    return put_call(node, call, {args, argc});
}

} // namespace limit_sliding
