/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/slot_map.hpp"

#include <hiredis/hiredis.h>

namespace limit_sliding {

namespace {

/* Milliseconds between the times that the map is asked. */
constexpr ngx_msec_t kRefreshInterval = 1000;

/* A redirection to one more is not believed. */
constexpr size_t kNodesMax = 1024;

constexpr std::string_view kCommand[] = {"CLUSTER", "SLOTS"};

/* The highest for a node that answers, then one that soon will, then one that
 * may; 0 for one that has not for long. */
ngx_uint_t rank(const ClusterNode &node)
{
    if (node.is_ready() && node.failures == 0) {
        return NGX_MAX_INT32_VALUE;
    }

    if (!node.is_usable()) {
        return 0;
    }

    return 2 * (kFailuresMax - ngx_min(node.failures, kFailuresMax))
           + !node.is_closed() + 1;
}

} // namespace

bool SlotMap::start(const NodeContext &context, const NodeRole *role)
{
    nodes.init();

    context_ = context;
    role_ = role;
    stale_ = true;

    add = [](SlotRangeSink &map, const SlotRange &range) {
        static_cast<SlotMap &>(map).add_range(range);
    };

    refresh_.data = this;
    refresh_.log = ngx_cycle->log;
    refresh_.handler
        = [](ngx_event_t *ev) { static_cast<SlotMap *>(ev->data)->refresh(); };

    for (const Server &server : context.settings->servers) {
        if (ClusterNode *node = add_node()) {
            node->server.set(server);
            node->seed = true;
        }
    }

    return !nodes.empty();
}

ClusterNode *SlotMap::add_node()
{
    auto *node = create_on_heap<ClusterNode>();
    if (node != nullptr) {
        node->init(context_, role_);
        node->map = this;
        nodes.push_back(*node);
        nnodes_++;
    }

    return node;
}

void SlotMap::free_node(ClusterNode &node)
{
    node.close();

    if (node.flush.posted) {
        ngx_delete_posted_event(&node.flush);
    }

    if (hint_ == &node) {
        hint_ = nullptr;
    }

    nodes.remove(node);
    nnodes_--;
    destroy_on_heap(&node);
}

ClusterNode *SlotMap::find(const ClusterNode &teller, std::string_view host,
                           int64_t port)
{
    if (host.empty() || host[0] == '?') {
        host = teller.server.bare_host();
    }

    for (ClusterNode &node : nodes) {
        if (node.server.port == port && node.server.bare_host() == host) {
            return &node;
        }
    }

    ClusterNode *node = nnodes_ < kNodesMax ? add_node() : nullptr;
    if (node != nullptr && !node->server.set(host, port)) {
        free_node(*node);
        return nullptr;
    }

    return node;
}

ClusterNode &SlotMap::any()
{
    /* there is always one: the seeds stay */
    ClusterNode *best = &nodes.front();

    for (ClusterNode &node : nodes) {
        if (rank(node) > rank(*best)) {
            best = &node;
        }
    }

    return *best;
}

void SlotMap::set_stale(ClusterNode *hint)
{
    stale_ = true;
    hint_ = hint;
    refresh_soon();
}

void SlotMap::refresh()
{
    if (!stale_ || asked_ != nullptr
        || (loaded_ && ngx_current_msec - asked_at_ < kRefreshInterval)) {
        return;
    }

    ClusterNode &node = hint_ != nullptr && hint_->is_ready() ? *hint_ : any();

    hint_ = nullptr;

    /* a node that is to be connected to is asked by greet() */

    if (node.open() != NGX_OK) {
        return;
    }

    Call *call = create_map_call();
    if (call == nullptr || node.command(*call, kCommand) != NGX_OK) {
        ngx_free(call);
        return;
    }

    note_asked(node);
    node.send();
}

bool SlotMap::greet(ClusterNode &node)
{
    if (!stale_ || asked_ != nullptr) {
        return true;
    }

    if (!node.greet(create_map_call(), kCommand)) {
        return false;
    }

    note_asked(node);

    return true;
}

Call *SlotMap::create_map_call()
{
    Call *call = create_call(answered);
    if (call != nullptr) {
        call->slots = this;
    }

    return call;
}

/* The next time another node is asked, if it is as good. */
void SlotMap::note_asked(ClusterNode &node)
{
    asked_ = &node;
    asked_at_ = ngx_current_msec;
    ranges_ = 0;

    nodes.remove(node);
    nodes.push_back(node);
}

/* Takes a range of the reply while that is being read. */
void SlotMap::add_range(const SlotRange &range)
{
    if (range.first < 0 || range.last >= kClusterSlots || range.port < 1
        || range.port > 65535) {
        return;
    }

    if (ClusterNode *node = find(*asked_, range.host, range.port)) {
        ranges_++;

        for (int64_t slot = range.first; slot <= range.last; slot++) {
            slots[slot] = node;
        }
    }
}

void SlotMap::answered(Node &from, Call &call, Reply *reply)
{
    auto &node = static_cast<ClusterNode &>(from);
    SlotMap &map = *node.map;

    ngx_free(&call);
    map.asked_ = nullptr;

    if (reply == nullptr) {
        return;
    }

    if (reply->type == REDIS_REPLY_ARRAY && map.ranges_ != 0) {
        map.changed(node);

        if (!node.is_ready()) {
            node.greeted();
        }

        return;
    }

    /* another node may know better */

    const char *reason = reply->type == REDIS_REPLY_ERROR
                             ? reply_text(reply)
                             : "it knows of no slots";

    if (node.is_ready()) {
        node.log->write(0, "%V: %s", &node.endpoint->text, reason);
    } else {
        node.set_broken(reason);
    }
}

/* Lets what is due go to where it belongs now, and forgets unused nodes without
 * slots, but for the one that has told so. */
void SlotMap::changed(ClusterNode &teller)
{
    loaded_ = true;
    stale_ = false;

    for (ClusterNode &node : nodes) {
        node.mapped = false;

        if (node.ndue != 0) {
            node.post_flush();
        }
    }

    for (ClusterNode *node : slots) {
        if (node != nullptr) {
            node->mapped = true;
        }
    }

    for (ClusterNode &node : nodes) {
        if (node.mapped || &node == &teller || !node.is_unused()) {
            continue;
        }

        if (node.seed) {
            node.close();
        } else {
            free_node(node);
        }
    }
}

} // namespace limit_sliding
