/* Copyright (C) the limit_sliding authors */

#include "redis/key_command.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>

#include "ngx/strings.hpp"
#include "redis/logic/leases.hpp"
#include "redis/scripts.hpp"

namespace limit_sliding {

namespace {

constexpr std::string_view kLimitSuffix = ":limit";

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
        if (ask.command == KeyCommand::kAskTtl) {
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

    /* what follows the key in the command */
    size_t bytes = std::max(kLimitSuffix.size() + value->len, sizeof(":4294967295") - 1);
    Ask *ask = create_ask(redis, {claim, 1}, bytes);
    if (ask == nullptr) { return false; }

    ngx_str_t &key = ask->parts[0].key;
    u_char *p = key.data + key.len;
    if (command != KeyCommand::kForget) {
        p = append(p, kLimitSuffix);
        key.len += kLimitSuffix.size();
    }

    ask->command = command;
    ask->value = {{value->len, p}, ttl_ms};
    append(p, view(*value));
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
    std::string_view args[6] = {"DEL", key};
    size_t argc = 2;

    /* the state of the key's own window: KEY:CODE */
    ngx_str_t own = {0, nullptr};
    if (ask.command == KeyCommand::kForget && part.window.is_given()) {
        u_char *end = ngx_sprintf(part.key.data + key.size(), ":%uD", part.window.code());
        own = {static_cast<size_t>(end - part.key.data), part.key.data};
        args[argc++] = view(own);
    }

    if (ask.command == KeyCommand::kAskTtl) {
        args[0] = "PTTL";
    } else if (ask.command == KeyCommand::kSetLimit) {
        args[0] = "SET";
        args[2] = view(ask.value.text);
        argc = 3;
        if (ask.value.ttl_ms != 0) {
            args[3] = "PX";
            args[4] = view(ms, ngx_sprintf(ms, "%M", ask.value.ttl_ms) - ms);
            argc = 5;
        }
    } else if (ask.command == KeyCommand::kForget && Leases::can_serve(*policy)) {
        /* some node may have leases, if this one has not */
        uint64_t window_ms = std::max(policy->window_ms, part.window.ms);
        u_char *end = ngx_sprintf(ms, "%uL", window_ms + kLeaseMs);

        args[0] = "EVAL";
        args[1] = forget_script();
        args[2] = "1";
        args[3] = key;
        args[4] = view(ms, end - ms);
        argc = 5;
        if (own.len) { args[argc++] = view(own.data + key.size(), own.len - key.size()); }
    }

    call.handler = command_answered;
    return put_call(node, call, {args, argc});
}

} // namespace limit_sliding
