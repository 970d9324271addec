/* Copyright (C) the limit_sliding authors */

#include "redis/calls/key_command.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>

#include "ngx/strings.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis/shared/leases.hpp"

namespace limit_sliding {

namespace {

/* The most that follows the name of a key's state in that of its own window: ":CODE", and
 * in that of the debt there. */
constexpr size_t kWindowSuffixMax = sizeof(":4294967295:debt") - 1;

/* Makes the arguments that forget a key, from "DEL" and its name on, and returns how many
 * they are.  `ms` has room for a number.  If the key may owe, or some node may have leases, a
 * script knows the other names; in a cluster these are not named beside the first one. */
size_t add_forget(const Node &node, const Ask &ask, u_char *ms, std::string_view *args) {
    const AskPart &part = ask.parts[0];
    const std::string_view key = args[1], mark = view(ask.order.text);
    const bool leases = Leases::can_serve(*part.claim.policy), settles = node.redis->settles;

    /* the state of the key's own window, and the debt there */
    std::string_view own, own_debt;
    if (part.window.is_given()) {
        u_char *p = part.key.data + key.size();
        u_char *end = ngx_sprintf(p, ":%uD", part.window.code());
        own = view(part.key.data, end - part.key.data);
        own_debt = view(part.key.data, append(end, kDebtSuffix) - part.key.data);
    }

    const std::string_view debt = {mark.data() + mark.size(), key.size() + kDebtSuffix.size()};
    const std::string_view names[]
        = {key, leases ? mark : "", settles ? debt : "", own, settles ? own_debt : ""};
    const bool is_script = leases || settles;
    const size_t first = is_script ? 3 : 1;
    const size_t most = is_script && node.redis->client.nodes.is_cluster() ? 1 : 5;
    size_t argc = first;
    for (size_t i = 0; i < most; i++) {
        if (!names[i].empty()) { args[argc++] = names[i]; }
    }

    if (!is_script) { return argc; }

    static constexpr char kDigits[] = "012345";
    const uint64_t window_ms = std::max(part.claim.policy->window_ms, part.window.ms);
    args[0] = "EVAL";
    args[1] = forget_script();
    args[2] = {kDigits + argc - first, 1};
    args[argc++] = view(ms, ngx_sprintf(ms, "%uL", leases ? window_ms + kLeaseMs : 0) - ms);
    if (!own.empty()) { args[argc++] = {own.data() + key.size(), own.size() - key.size()}; }

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

    const bool forgets = command == KeyCommand::kForget;
    size_t more = forgets
                      ? 2 * key_bytes(remote_of(*claim)) + kMarkSuffix.size() + kDebtSuffix.size()
                      : value->len;
    Ask *ask = create_ask(redis, {claim, 1}, kWindowSuffixMax + more);
    if (ask == nullptr) { return false; }

    ngx_str_t &key = ask->parts[0].key;
    std::string_view name = view(key);
    if (!forgets) { key.len += kLimitSuffix.size(); }

    u_char *p = key.data + key.len + (forgets ? kWindowSuffixMax : 0);
    u_char *end = forgets ? append(append(p, name), kMarkSuffix) : append(p, view(*value));
    ask->order = {command, {static_cast<size_t>(end - p), p}, ttl_ms};
    if (forgets) { append(append(end, name), kDebtSuffix); }

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
    std::string_view key = view(part.key);
    u_char ms[NGX_INT64_LEN];
    std::string_view args[10] = {"DEL", key};
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
        argc = add_forget(node, ask, ms, args);
    }

    call.handler = command_answered;
    return put_call(node, call, {args, argc});
}

} // namespace limit_sliding
