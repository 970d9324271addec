
/*
 * Copyright (C) the limit_sliding authors
 */

/* Errors of a cluster's nodes which say where to ask. */

#include "redis/cluster.hpp"

namespace limit_sliding {

static Node *parse_direction(Node *node, u_char *p, u_char *last);
static void asking_answered(Node &node, Call &call, Reply *reply);

Node *Nodes::redirect(Node &from, ngx_int_t slot, Reply &reply,
                      Redirect *direction)
{
    u_char *p, *last;

    p = reply.text;
    last = p + reply.len;

    if (reply.len > 6 && ngx_strncmp(p, "MOVED ", 6) == 0) {
        Node *to = parse_direction(&from, p + 6, last);

        if (to) {
            cluster->slots[slot] = to;
            map_stale(cluster, &from);
        }

        *direction = Redirect::kMoved;
        return to;
    }

    if (reply.len > 4 && ngx_strncmp(p, "ASK ", 4) == 0) {
        *direction = Redirect::kAsk;
        return parse_direction(&from, p + 4, last);
    }

    if (ngx_strlcasestrn(p, last, (u_char *)"non local key", 13 - 1)) {

        /*
         * Of a slot that moves: the script's first command expired the last
         * event of a log, and what no longer exists is asked elsewhere.
         */

        *direction = Redirect::kAgain;
        return &from;
    }

    if (reply.len > 11 && ngx_strncmp(p, "CLUSTERDOWN", 11) == 0) {
        map_stale(cluster, &from);
    }

    *direction = Redirect::kNone;
    return NULL;
}

/*
 * "slot host:port": the slot is the one that was asked of.  A host may have
 * colons, or be left out: it is the same.
 */

static Node *parse_direction(Node *node, u_char *p, u_char *last)
{
    u_char *blank, *colon;
    ngx_str_t host;

    blank = ngx_strlchr(p, last, ' ');
    if (blank == NULL) {
        return NULL;
    }

    for (colon = last - 1; *colon != ':'; colon--) {
        if (colon == blank) {
            return NULL;
        }
    }

    host.data = blank + 1;
    host.len = colon - host.data;

    if (host.len == 0 || host.data[0] == '?') {
        node_host(node, &host);
    }

    return cluster_node(node->nodes->cluster, &host,
                        ngx_atoi(colon + 1, last - (colon + 1)));
}

ngx_int_t send_asking(Node &node)
{
    Call *call;

    static const char *argv[] = {"ASKING"};
    static const size_t argvlen[] = {6};

    call = ngx_calloc(sizeof(Call), ngx_cycle->log);
    if (call == NULL) {
        return NGX_ERROR;
    }

    call->handler = asking_answered;

    if (node.command(*call, 1, argv, argvlen) != NGX_OK) {
        ngx_free(call);
        return NGX_ERROR;
    }

    return NGX_OK;
}

/* If it was refused, so will be what follows. */

static void asking_answered(Node &node, Call &call, Reply *reply)
{
    ngx_free(&call);
}

} // namespace limit_sliding
