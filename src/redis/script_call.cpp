
/*
 * Copyright (C) the limit_sliding authors
 */

/* Calls of the script, whose arguments and reply scripts.h describes. */

#include "redis/script_call.hpp"
#include "ngx/ngx.hpp"
#include "redis/scripts.hpp"

namespace limit_sliding {

/* Claims of a call. */

constexpr auto kCallClaims = 2 * kClaimsMax;

constexpr auto kArgs = 4 + kCallClaims * (1 + 8 + 1) + kAsksPerCall * 2;

/* The command that is being made. */

struct Command {
    ngx_uint_t argc;
    const char *argv[kArgs];
    size_t len[kArgs];

    ngx_uint_t nkinds;
    AskPart *kinds[kCallClaims];

    u_char *last;
    u_char text[kArgs * 16];
};

static void add_arg(Command *command, u_char *data, size_t len);
static void add_number(Command *command, uint64_t number);
static void add_keys(Command *command, ngx_queue_t *asks);
static void add_kinds(Command *command, ngx_queue_t *asks);
static void add_asks(Command *command, ngx_queue_t *asks);
static ngx_uint_t print_kind(Command *command, AskPart *part);

/* What the zones of a Redis need, in one script. */

ngx_int_t redis_script(ngx_conf_t *cf, Redis *redis)
{
    u_char digest[20];
    ngx_str_t *script, *sha1;
    ngx_sha1_t sha;
    ngx_uint_t algorithms;

    algorithms = redis->algorithms;

    if (redis->settings.topology == Topology::kCluster) {
        algorithms |= kScriptCluster;
    }

    script = &redis->script;

    script->len = limit_sliding::script(algorithms, NULL, 0);

    script->data = ngx_pnalloc(cf->pool, script->len + 1);
    if (script->data == NULL) {
        return NGX_ERROR;
    }

    (void)limit_sliding::script(algorithms, (char *)script->data,
                                script->len + 1);

    sha1 = &redis->script_sha1;

    sha1->len = 2 * sizeof(digest);

    sha1->data = ngx_pnalloc(cf->pool, sha1->len);
    if (sha1->data == NULL) {
        return NGX_ERROR;
    }

    ngx_sha1_init(&sha);
    ngx_sha1_update(&sha, script->data, script->len);
    ngx_sha1_final(digest, &sha);

    ngx_hex_dump(sha1->data, digest, sizeof(digest));

    return NGX_OK;
}

/*
 * As many as a call takes; each takes a part of what the reply may hold.  In a
 * cluster, where they lie in one slot hardly ever, one: a redirection is its.
 */

ngx_uint_t call_fits(AskCall *call, Ask *ask)
{
    ngx_uint_t i, numbers;

    numbers = 1;

    for (i = 0; i < ask->nparts; i++) {
        numbers += 1 + limit_sliding::remote_values(ask->parts[i].claim.policy);
    }

    if (call->order || (ask->order != KeyCommand::kNone && call->nasks)) {
        return 0;
    }

    call->order = (ask->order != KeyCommand::kNone);

    if (call->nasks
            == (ask->redis->client.nodes.is_cluster() ? 1 : kAsksPerCall)
        || call->nclaims + ask->nparts > kCallClaims
        || 1 + call->numbers + numbers + ask->nparts > kReplyNumbers) {
        return 0;
    }

    call->nasks++;
    call->nclaims += ask->nparts;
    call->numbers += numbers;

    return 1;
}

/* Puts the call of its asks into the node's buffer. */

ngx_int_t call_script(Node *node, AskCall *call)
{
    Redis *redis;
    Command *command;

    static Command buffer;

    redis = node->redis;
    command = &buffer;

    if (call->asking && send_asking(*node) != NGX_OK) {
        return NGX_ERROR;
    }

    command->argc = 0;
    command->nkinds = 0;
    command->last = command->text;

    if (call->whole) {
        add_arg(command, (u_char *)"EVAL", 4);
        add_arg(command, redis->script.data, redis->script.len);
    } else {
        add_arg(command, (u_char *)"EVALSHA", 7);
        add_arg(command, redis->script_sha1.data, redis->script_sha1.len);
    }

    add_number(command, call->nclaims);
    add_keys(command, &call->asks);
    add_kinds(command, &call->asks);
    add_asks(command, &call->asks);

    return node->command(*call, command->argc, command->argv, command->len);
}

static void add_arg(Command *command, u_char *data, size_t len)
{
    command->argv[command->argc] = (char *)data;
    command->len[command->argc] = len;
    command->argc++;
}

static void add_number(Command *command, uint64_t number)
{
    u_char *p;

    p = command->last;
    command->last = ngx_sprintf(p, "%uL", number);

    add_arg(command, p, command->last - p);
}

static void add_keys(Command *command, ngx_queue_t *asks)
{
    ngx_uint_t i;
    ngx_queue_t *q;
    Ask *ask;

    for (q = ngx_queue_head(asks); q != ngx_queue_sentinel(asks);
         q = ngx_queue_next(q)) {
        ask = ngx_queue_data(q, Ask, queue);

        for (i = 0; i < ask->nparts; i++) {
            add_arg(command, ask->parts[i].key.data, ask->parts[i].key.len);
        }
    }
}

/* What claims have in common is sent once. */

static void add_kinds(Command *command, ngx_queue_t *asks)
{
    ngx_uint_t i, held;
    ngx_queue_t *q;
    Claim *kind;
    Ask *ask;

    for (q = ngx_queue_head(asks); q != ngx_queue_sentinel(asks);
         q = ngx_queue_next(q)) {
        ask = ngx_queue_data(q, Ask, queue);

        for (i = 0; i < ask->nparts; i++) {
            (void)print_kind(command, &ask->parts[i]);
        }
    }

    add_number(command, command->nkinds);

    for (i = 0; i < command->nkinds; i++) {
        kind = &command->kinds[i]->claim;

        add_number(command, static_cast<uint64_t>(kind->policy->algorithm));
        add_number(command, kind->policy->window_ms);
        add_number(command, kind->limit);
        add_number(command, kind->policy->algorithm == Algorithm::kCounter
                                ? ngx_max(kind->policy->precision, 1)
                                : kind->policy->burst);
        add_number(command, kind->cost);

        held = command->kinds[i]->held ? kLookHeld : 0;

        if (command->kinds[i]->leased) {
            add_number(command, kLookLeased + held);
            add_number(command, command->kinds[i]->leased);
            continue;
        }

        add_number(command, kind->look + held);

        if (kind->look == kLookGiveBack) {
            add_number(command, command->kinds[i]->taken_ms);
            add_number(command, command->kinds[i]->taken_of);
        }
    }
}

/* The number of the claim's kind, from 1 on; a new one is remembered. */

static ngx_uint_t print_kind(Command *command, AskPart *part)
{
    ngx_uint_t i;
    Claim *claim, *kind;

    claim = &part->claim;

    for (i = 0; i < command->nkinds; i++) {
        kind = &command->kinds[i]->claim;

        if (command->kinds[i] == part
            || (kind->policy == claim->policy && kind->limit == claim->limit
                && kind->cost == claim->cost && kind->look == claim->look
                && command->kinds[i]->held == part->held
                && kind->look != kLookGiveBack && part->leased == 0
                && command->kinds[i]->leased == 0)) {
            return i + 1;
        }
    }

    command->kinds[command->nkinds++] = part;

    return command->nkinds;
}

/* But for plain ones at the end, which are most: the script knows them. */

static void add_asks(Command *command, ngx_queue_t *asks)
{
    ngx_uint_t i;
    ngx_queue_t *q, *end;
    Ask *ask;

    for (end = asks; ngx_queue_prev(end) != asks; end = ngx_queue_prev(end)) {
        ask = ngx_queue_data(ngx_queue_prev(end), Ask, queue);

        if (ask->asked_units != 1 || ask->nparts != 1
            || print_kind(command, &ask->parts[0]) != 1) {
            break;
        }
    }

    for (q = ngx_queue_head(asks); q != end; q = ngx_queue_next(q)) {
        ask = ngx_queue_data(q, Ask, queue);

        add_number(command, ask->asked_units);
        add_number(command, ask->nparts);

        for (i = 0; i < ask->nparts; i++) {
            add_number(command, print_kind(command, &ask->parts[i]));
        }
    }
}

} // namespace limit_sliding
