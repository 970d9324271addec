/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/cluster.hpp"

#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

ClusterNode &cluster_node(Node &node)
{
    return static_cast<ClusterNode &>(node);
}

/* The node answers, be it with an error: requests may wait for it.  If it fails
 * once more it is left alone for as long as before. */
void time_received(Node &node, Call &call, Reply *reply)
{
    ngx_free(&call);

    if (reply != nullptr) {
        node.failures = kFailuresMax - 1;
        node.greeted();
    }
}

bool greet(Node &greeted)
{
    constexpr std::string_view time[] = {"TIME"};

    ClusterNode &node = cluster_node(greeted);

    /* A node that failed often may hang; the script needs TIME, too. */

    return node.greet_server()
           && (!node.has_failed()
               || node.greet(create_call(time_received), time))
           && node.map->greet(node);
}

void failed(Node &node)
{
    cluster_node(node).map->set_stale(nullptr);
}

const NodeRole role = {greet, nullptr, nullptr, failed};

/* Returns the node in "slot host:port", whose host may have colons.  The slot
 * is the one that was asked of. */
ClusterNode *find_target(SlotMap &map, const ClusterNode &teller,
                         std::string_view target)
{
    size_t blank = target.find(' ');
    size_t colon = target.rfind(':');

    if (blank == target.npos || colon == target.npos || colon < blank) {
        return nullptr;
    }

    u_char *host = bytes(target) + blank + 1;
    u_char *port = bytes(target) + colon + 1;

    return map.find(teller, view(host, port - 1 - host),
                    ngx_atoi(port, target.size() - colon - 1));
}

} // namespace

Cluster *Cluster::create(const NodeContext &context)
{
    auto *cluster = create_on_heap<Cluster>();
    if (cluster == nullptr) {
        return nullptr;
    }

    if (!cluster->map_.start(context, &role)) {
        destroy_on_heap(cluster);
        return nullptr;
    }

    return cluster;
}

void Cluster::close()
{
    for (ClusterNode &node : map_.nodes) {
        node.close();
    }
}

ClusterNode &Cluster::route(ngx_int_t slot)
{
    ClusterNode *node = map_.slots[slot];

    return node != nullptr ? *node : map_.any();
}

bool Cluster::is_worth(ngx_int_t slot)
{
    ClusterNode &node = route(slot);

    if (map_.is_stale()) {
        map_.refresh_soon();
    }

    if (node.is_usable() && (!node.has_failed() || node.is_unused())) {
        return true;
    }

    /* perhaps it has been replaced */

    map_.set_stale(nullptr);

    return false;
}

ngx_msec_t Cluster::retry()
{
    ngx_msec_t wait = NGX_MAX_INT32_VALUE;

    for (ClusterNode &node : map_.nodes) {
        if (!node.has_failed() || !node.is_closed()
            || (map_.is_loaded() && !node.mapped)) {
            continue;
        }

        if (node.is_usable()) {
            (void)node.open();
        } else {
            wait = ngx_min(wait, node.retry_at - ngx_current_msec);
        }
    }

    return wait;
}

/* A node that only a redirection named may be nobody's, or the same server. */
bool Cluster::is_alive_without(const Node &failed)
{
    for (ClusterNode &node : map_.nodes) {
        if (&node != &failed && node.failures == 0 && node.is_ready()
            && (node.mapped || node.seed)) {
            return true;
        }
    }

    return false;
}

Node *Cluster::redirect(Node &from, ngx_int_t slot, const Reply &reply,
                        Redirect *kind)
{
    ClusterNode &node = cluster_node(from);
    std::string_view error = view(reply.text, reply.len);

    if (cut_prefix(&error, "MOVED ")) {
        ClusterNode *to = find_target(map_, node, error);

        if (to != nullptr) {
            map_.slots[slot] = to;
            map_.set_stale(&node);
        }

        *kind = Redirect::kMoved;
        return to;
    }

    if (cut_prefix(&error, "ASK ")) {
        *kind = Redirect::kAsk;
        return find_target(map_, node, error);
    }

    /* The slot is moving: the script's first command expired the last event of
     * a log, and a key that no longer exists is asked elsewhere. */

    if (ngx_strlcasestrn(bytes(error), bytes(error) + error.size(),
                         bytes("non local key"), 13 - 1)
        != nullptr) {
        *kind = Redirect::kAgain;
        return &node;
    }

    if (starts_with(error, "CLUSTERDOWN")) {
        map_.set_stale(&node);
    }

    *kind = Redirect::kNone;
    return nullptr;
}

} // namespace limit_sliding
