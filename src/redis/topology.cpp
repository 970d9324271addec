/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/topology.hpp"

#include "ngx/array.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

/* The one server of "topology standalone". */
struct StandaloneNode : Node {
    Endpoint server;
};

bool greet(Node &node)
{
    return node.greet_server();
}

const NodeRole standalone = {greet, nullptr, nullptr, nullptr, nullptr};

Node *create_standalone_node(const NodeContext &context)
{
    auto *node = create_on_heap<StandaloneNode>();
    if (node != nullptr) {
        node->server.set(span<Server>(context.settings->servers)[0]);
        node->init(context, &standalone, &node->server);
    }

    return node;
}

} // namespace

ngx_int_t Nodes::start(Redis *redis, const Settings *settings,
                       const ClientEvents *events)
{
    NodeContext context = {redis, settings, &log, events};
    bool complete = false;

    log.set_name(settings->name);

    if (settings->topology == Topology::kCluster) {
        cluster = Cluster::create(context);
        complete = cluster != nullptr;

    } else if (settings->topology == Topology::kSentinel) {
        SentinelNode *used = create_sentinel_node(context, nullptr);

        if (used != nullptr) {
            context.events = nullptr;
            watch = create_sentinel_node(context, used);
        }

        node = used;
        complete = watch != nullptr;

    } else {
        node = create_standalone_node(context);
        complete = node != nullptr;
    }

    return complete ? NGX_OK : NGX_ERROR;
}

void Nodes::close()
{
    if (node != nullptr) {
        node->close();
    }

    if (watch != nullptr) {
        watch->close();
    }

    if (cluster != nullptr) {
        cluster->close();
    }
}

void Nodes::sent()
{
    if (watch != nullptr) {
        watch_master(*watch, &watched);
    }
}

Node *Nodes::route(ngx_int_t slot)
{
    return is_cluster() ? &cluster->route(slot) : node;
}

bool Nodes::is_worth(ngx_int_t slot)
{
    return !is_cluster() || cluster->is_worth(slot);
}

ngx_msec_t Nodes::retry()
{
    return cluster->retry();
}

bool Nodes::is_alive_without(const Node &failed) const
{
    return cluster->is_alive_without(failed);
}

Node *Nodes::redirect(Node &from, ngx_int_t slot, Reply &reply, Redirect *kind)
{
    return cluster->redirect(from, slot, view(reply.text, reply.len), kind);
}

/* If ASKING was refused, so will be the command that follows. */
ngx_int_t send_asking(Node &node)
{
    static const std::string_view args[] = {"ASKING"};

    Call *call = create_call(
        [](Node &, Call &answered, Reply *) { ngx_free(&answered); });

    if (call != nullptr && node.command(*call, args) == NGX_OK) {
        return NGX_OK;
    }

    ngx_free(call);

    return NGX_ERROR;
}

} // namespace limit_sliding
