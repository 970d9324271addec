
/*
 * Copyright (C) the limit_sliding authors
 */


/* Calls of the script, whose arguments and reply scripts.h describes. */


#include "redis/cluster.h"
#include "redis/scripts.h"

#include <ngx_sha1.h>


/* Claims of a call. */

#define NGX_HTTP_LIMIT_SLIDING_CALL_CLAIMS                                    \
    (2 * NGX_HTTP_LIMIT_SLIDING_CLAIMS)

#define NGX_HTTP_LIMIT_SLIDING_ARGS                                           \
    (4 + NGX_HTTP_LIMIT_SLIDING_CALL_CLAIMS * (1 + 8 + 1)                     \
     + NGX_HTTP_LIMIT_SLIDING_ASKS * 2)


/* The command that is being made. */

typedef struct {
    ngx_uint_t              argc;
    const char             *argv[NGX_HTTP_LIMIT_SLIDING_ARGS];
    size_t                  len[NGX_HTTP_LIMIT_SLIDING_ARGS];

    ngx_uint_t              nkinds;
    ngx_http_limit_sliding_part_t
                           *kinds[NGX_HTTP_LIMIT_SLIDING_CALL_CLAIMS];

    u_char                 *last;
    u_char                  text[NGX_HTTP_LIMIT_SLIDING_ARGS * 16];
} ngx_http_limit_sliding_command_t;


static void ngx_http_limit_sliding_add_arg(
    ngx_http_limit_sliding_command_t *command, u_char *data, size_t len);
static void ngx_http_limit_sliding_add_number(
    ngx_http_limit_sliding_command_t *command, uint64_t number);
static void ngx_http_limit_sliding_add_keys(
    ngx_http_limit_sliding_command_t *command, ngx_queue_t *asks);
static void ngx_http_limit_sliding_add_kinds(
    ngx_http_limit_sliding_command_t *command, ngx_queue_t *asks);
static void ngx_http_limit_sliding_add_asks(
    ngx_http_limit_sliding_command_t *command, ngx_queue_t *asks);
static ngx_uint_t ngx_http_limit_sliding_kind(
    ngx_http_limit_sliding_command_t *command,
    ngx_http_limit_sliding_part_t *part);


/* What the zones of a Redis need, in one script. */

ngx_int_t
ngx_http_limit_sliding_redis_script(ngx_conf_t *cf,
    ngx_http_limit_sliding_redis_t *redis)
{
    u_char      digest[20];
    ngx_str_t  *script, *sha1;
    ngx_sha1_t  sha;
    ngx_uint_t  algorithms;

    algorithms = redis->algorithms;

    if (redis->topology == NGX_HTTP_LIMIT_SLIDING_CLUSTER) {
        algorithms |= LIMIT_SLIDING_SCRIPT_CLUSTER;
    }

    script = &redis->script;

    script->len = limit_sliding_script(algorithms, NULL, 0);

    script->data = ngx_pnalloc(cf->pool, script->len + 1);
    if (script->data == NULL) {
        return NGX_ERROR;
    }

    (void) limit_sliding_script(algorithms, (char *) script->data,
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

ngx_uint_t
ngx_http_limit_sliding_call_fits(ngx_http_limit_sliding_call_t *call,
    ngx_http_limit_sliding_ask_t *ask)
{
    ngx_uint_t  i, numbers;

    numbers = 1;

    for (i = 0; i < ask->nparts; i++) {
        numbers += 1 + limit_sliding_remote_values(ask->parts[i].claim.policy);
    }

    if (call->order || (ask->order && call->nasks)) {
        return 0;
    }

    call->order = (ask->order != NGX_HTTP_LIMIT_SLIDING_NO_ORDER);

    if (call->nasks == (ask->redis->cluster ? 1 : NGX_HTTP_LIMIT_SLIDING_ASKS)
        || call->nclaims + ask->nparts > NGX_HTTP_LIMIT_SLIDING_CALL_CLAIMS
        || 1 + call->numbers + numbers + ask->nparts
           > NGX_HTTP_LIMIT_SLIDING_NUMBERS)
    {
        return 0;
    }

    call->nasks++;
    call->nclaims += ask->nparts;
    call->numbers += numbers;

    return 1;
}


/* Puts the call of its asks into the node's buffer. */

ngx_int_t
ngx_http_limit_sliding_call_script(ngx_http_limit_sliding_node_t *node,
    ngx_http_limit_sliding_call_t *call)
{
    ngx_http_limit_sliding_redis_t    *redis;
    ngx_http_limit_sliding_command_t  *command;

    static ngx_http_limit_sliding_command_t  buffer;

    redis = node->redis;
    command = &buffer;

    if (call->asking
        && ngx_http_limit_sliding_call_asking(node) != NGX_OK)
    {
        return NGX_ERROR;
    }

    command->argc = 0;
    command->nkinds = 0;
    command->last = command->text;

    if (call->whole) {
        ngx_http_limit_sliding_add_arg(command, (u_char *) "EVAL", 4);
        ngx_http_limit_sliding_add_arg(command, redis->script.data,
                                       redis->script.len);
    } else {
        ngx_http_limit_sliding_add_arg(command, (u_char *) "EVALSHA", 7);
        ngx_http_limit_sliding_add_arg(command, redis->script_sha1.data,
                                       redis->script_sha1.len);
    }

    ngx_http_limit_sliding_add_number(command, call->nclaims);
    ngx_http_limit_sliding_add_keys(command, &call->asks);
    ngx_http_limit_sliding_add_kinds(command, &call->asks);
    ngx_http_limit_sliding_add_asks(command, &call->asks);

    return ngx_http_limit_sliding_node_command(node, call, command->argc,
                                               command->argv, command->len);
}


static void
ngx_http_limit_sliding_add_arg(ngx_http_limit_sliding_command_t *command,
    u_char *data, size_t len)
{
    command->argv[command->argc] = (char *) data;
    command->len[command->argc] = len;
    command->argc++;
}


static void
ngx_http_limit_sliding_add_number(ngx_http_limit_sliding_command_t *command,
    uint64_t number)
{
    u_char  *p;

    p = command->last;
    command->last = ngx_sprintf(p, "%uL", number);

    ngx_http_limit_sliding_add_arg(command, p, command->last - p);
}


static void
ngx_http_limit_sliding_add_keys(ngx_http_limit_sliding_command_t *command,
    ngx_queue_t *asks)
{
    ngx_uint_t                     i;
    ngx_queue_t                   *q;
    ngx_http_limit_sliding_ask_t  *ask;

    for (q = ngx_queue_head(asks);
         q != ngx_queue_sentinel(asks);
         q = ngx_queue_next(q))
    {
        ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

        for (i = 0; i < ask->nparts; i++) {
            ngx_http_limit_sliding_add_arg(command, ask->parts[i].key.data,
                                           ask->parts[i].key.len);
        }
    }
}


/* What claims have in common is sent once. */

static void
ngx_http_limit_sliding_add_kinds(ngx_http_limit_sliding_command_t *command,
    ngx_queue_t *asks)
{
    ngx_uint_t                     i, held;
    ngx_queue_t                   *q;
    limit_sliding_claim_t         *kind;
    ngx_http_limit_sliding_ask_t  *ask;

    for (q = ngx_queue_head(asks);
         q != ngx_queue_sentinel(asks);
         q = ngx_queue_next(q))
    {
        ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

        for (i = 0; i < ask->nparts; i++) {
            (void) ngx_http_limit_sliding_kind(command, &ask->parts[i]);
        }
    }

    ngx_http_limit_sliding_add_number(command, command->nkinds);

    for (i = 0; i < command->nkinds; i++) {
        kind = &command->kinds[i]->claim;

        ngx_http_limit_sliding_add_number(command, kind->policy->algorithm);
        ngx_http_limit_sliding_add_number(command, kind->policy->window_ms);
        ngx_http_limit_sliding_add_number(command, kind->limit);
        ngx_http_limit_sliding_add_number(command,
                         kind->policy->algorithm == LIMIT_SLIDING_COUNTER
                         ? ngx_max(kind->policy->precision, 1)
                         : kind->policy->burst);
        ngx_http_limit_sliding_add_number(command, kind->cost);

        held = command->kinds[i]->held ? NGX_HTTP_LIMIT_SLIDING_HELD : 0;

        if (command->kinds[i]->leased) {
            ngx_http_limit_sliding_add_number(command,
                                        NGX_HTTP_LIMIT_SLIDING_LEASED + held);
            ngx_http_limit_sliding_add_number(command,
                                              command->kinds[i]->leased);
            continue;
        }

        ngx_http_limit_sliding_add_number(command, kind->look + held);

        if (kind->look == NGX_HTTP_LIMIT_SLIDING_GIVE_BACK) {
            ngx_http_limit_sliding_add_number(command,
                                              command->kinds[i]->taken_ms);
            ngx_http_limit_sliding_add_number(command,
                                              command->kinds[i]->taken_of);
        }
    }
}


/* The number of the claim's kind, from 1 on; a new one is remembered. */

static ngx_uint_t
ngx_http_limit_sliding_kind(ngx_http_limit_sliding_command_t *command,
    ngx_http_limit_sliding_part_t *part)
{
    ngx_uint_t              i;
    limit_sliding_claim_t  *claim, *kind;

    claim = &part->claim;

    for (i = 0; i < command->nkinds; i++) {
        kind = &command->kinds[i]->claim;

        if (command->kinds[i] == part
            || (kind->policy == claim->policy
                && kind->limit == claim->limit
                && kind->cost == claim->cost
                && kind->look == claim->look
                && command->kinds[i]->held == part->held
                && kind->look != NGX_HTTP_LIMIT_SLIDING_GIVE_BACK
                && part->leased == 0
                && command->kinds[i]->leased == 0))
        {
            return i + 1;
        }
    }

    command->kinds[command->nkinds++] = part;

    return command->nkinds;
}


/* But for plain ones at the end, which are most: the script knows them. */

static void
ngx_http_limit_sliding_add_asks(ngx_http_limit_sliding_command_t *command,
    ngx_queue_t *asks)
{
    ngx_uint_t                     i;
    ngx_queue_t                   *q, *end;
    ngx_http_limit_sliding_ask_t  *ask;

    for (end = asks; ngx_queue_prev(end) != asks; end = ngx_queue_prev(end)) {
        ask = ngx_queue_data(ngx_queue_prev(end),
                             ngx_http_limit_sliding_ask_t, queue);

        if (ask->asked_units != 1
            || ask->nparts != 1
            || ngx_http_limit_sliding_kind(command, &ask->parts[0]) != 1)
        {
            break;
        }
    }

    for (q = ngx_queue_head(asks); q != end; q = ngx_queue_next(q)) {
        ask = ngx_queue_data(q, ngx_http_limit_sliding_ask_t, queue);

        ngx_http_limit_sliding_add_number(command, ask->asked_units);
        ngx_http_limit_sliding_add_number(command, ask->nparts);

        for (i = 0; i < ask->nparts; i++) {
            ngx_http_limit_sliding_add_number(command,
                ngx_http_limit_sliding_kind(command, &ask->parts[i]));
        }
    }
}
