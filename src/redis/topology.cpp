
/*
 * Copyright (C) the limit_sliding authors
 */

/* The nodes of a Redis, and which of them is asked of what. */

#include "redis/cluster.hpp"

namespace limit_sliding {

ngx_int_t Nodes::start(Redis *client, Settings *configured,
                       const ClientEvents *told)
{
    redis = client;
    settings = configured;
    events = told;
    log.set_name(settings->name);

    if (settings->topology == Topology::kCluster) {
        return cluster_start(this);
    }

    auto *servers = static_cast<Server *>(settings->servers.elts);

    node = node_create(this, servers);

    if (node == nullptr) {
        return NGX_ERROR;
    }

    if (settings->topology == Topology::kSentinel) {
        watch = node_create(this, servers);

        if (watch == nullptr) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}

void Nodes::close()
{
    if (node) {
        node_close(node);
    }

    if (watch) {
        node_close(watch);
    }

    if (cluster) {
        cluster_exit(cluster);
    }
}

void Nodes::sent()
{
    if (watch) {
        watch_sentinels(this);
    }
}

Node *Nodes::route(ngx_int_t slot)
{
    if (cluster == nullptr) {
        return node;
    }

    Node *to = cluster->slots[slot];

    return to ? to : cluster_any(cluster);
}

bool Nodes::is_worth(ngx_int_t slot)
{
    if (cluster == nullptr) {
        return true;
    }

    Node *to = route(slot);

    if (cluster->stale) {
        ngx_post_event(&cluster->refresh, &ngx_posted_events);
    }

    if (to->is_usable()
        && (to->failures < kFailuresMax
            || (to->ndue == 0 && to->ncalls == 0))) {
        return true;
    }

    /* perhaps it has been replaced */

    map_stale(cluster, nullptr);

    return false;
}

ngx_msec_t Nodes::retry()
{
    ngx_msec_t wait = NGX_MAX_INT32_VALUE;

    for (ngx_queue_t *q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes); q = ngx_queue_next(q)) {
        Node *to = ngx_queue_data(q, Node, queue);

        if (to->failures < kFailuresMax || to->state != NodeState::kClosed
            || (cluster->loaded && !to->mapped)) {
            continue;
        }

        auto left = (ngx_msec_int_t)(to->retry_at - ngx_current_msec);

        if (left > 0) {
            wait = ngx_min(wait, (ngx_msec_t)left);
            continue;
        }

        (void)to->open();
    }

    return wait;
}

/* A node that only a redirection named does not count: it may be nobody's, or
 * the same server. */

bool Nodes::is_alive_without(const Node &but) const
{
    for (ngx_queue_t *q = ngx_queue_head(&cluster->nodes);
         q != ngx_queue_sentinel(&cluster->nodes); q = ngx_queue_next(q)) {
        Node *other = ngx_queue_data(q, Node, queue);

        if (other != &but && other->failures == 0 && other->is_ready()
            && (other->mapped || other->seed)) {
            return true;
        }
    }

    return false;
}

} // namespace limit_sliding
