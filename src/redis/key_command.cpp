/* Copyright (C) the limit_sliding authors */

#include "redis/key_command.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>

#include "ngx/strings.hpp"
#include "redis/logic/leases.hpp"
#include "redis/scripts.hpp"

namespace limit_sliding {

namespace {

/* The most that follows the name of a key's state in that of its own window: ":CODE". */
constexpr size_t kWindowSuffixMax = sizeof(":4294967295") - 1;

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
    size_t more = forgets ? key_bytes(remote_of(*claim)) + kMarkSuffix.size() : value->len;
    Ask *ask = create_ask(redis, {claim, 1}, kWindowSuffixMax + more);
    if (ask == nullptr) { return false; }

    ngx_str_t &key = ask->parts[0].key;
    std::string_view name = view(key);
    if (!forgets) { key.len += kLimitSuffix.size(); }

    u_char *p = key.data + key.len + (forgets ? kWindowSuffixMax : 0);
    u_char *end = forgets ? append(append(p, name), kMarkSuffix) : append(p, view(*value));
    ask->order = {command, {static_cast<size_t>(end - p), p}, ttl_ms};
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
    const Policy *policy = part.claim.policy;
    std::string_view key = view(part.key);
    u_char ms[NGX_INT64_LEN];
    std::string_view args[8] = {"DEL", key};
    size_t argc = 2;

    /* the state of the key's own window */
    std::string_view own;
    if (ask.order.command == KeyCommand::kForget && part.window.is_given()) {
        u_char *end = ngx_sprintf(part.key.data + key.size(), ":%uD", part.window.code());
        own = view(part.key.data, end - part.key.data);
        args[argc++] = own;
    }

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
    } else if (ask.order.command == KeyCommand::kForget && Leases::can_serve(*policy)) {
        /* some node may have leases, if this one has not */
        uint64_t window_ms = std::max(policy->window_ms, part.window.ms);
        u_char *end = ngx_sprintf(ms, "%uL", window_ms + kLeaseMs);

        args[0] = "EVAL";
        args[1] = forget_script();
        args[2] = "1";
        args[3] = key;
        argc = 4;
        if (!node.redis->client.nodes.is_cluster()) {
            args[2] = own.empty() ? "2" : "3";
            args[argc++] = view(ask.order.text);
            if (!own.empty()) { args[argc++] = own; }
        }

        args[argc++] = view(ms, end - ms);
        if (!own.empty()) { args[argc++] = {own.data() + key.size(), own.size() - key.size()}; }
    }

    call.handler = command_answered;
    return put_call(node, call, {args, argc});
}

} // namespace limit_sliding
