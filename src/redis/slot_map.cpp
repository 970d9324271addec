/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/slot_map.hpp"

#include <hiredis/hiredis.h>

namespace limit_sliding {

namespace {

/* Milliseconds between the times that it is asked. */
constexpr ngx_msec_t kRefreshInterval = 1000;

constexpr std::string_view kCommand[] = {"CLUSTER", "SLOTS"};

} // namespace

struct SlotMap::MapCall : Call, SlotRangeSink {
    SlotMap *map;
};

void SlotMap::start(ClusterNodes *nodes)
{
    nodes_ = nodes;
    stale_ = true;

    refresh_.handler
        = [](ngx_event_t *ev) { static_cast<SlotMap *>(ev->data)->refresh(); };
    refresh_.data = this;
    refresh_.log = ngx_cycle->log;
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

    ClusterNode &node
        = hint_ != nullptr && hint_->is_ready() ? *hint_ : nodes_->any();

    hint_ = nullptr;

    /* a node that is to be connected to is asked by greet() */

    if (node.open() != NGX_OK) {
        return;
    }

    MapCall *call = create();
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

    if (!node.greet(create(), kCommand)) {
        return false;
    }

    note_asked(node);

    return true;
}

SlotMap::MapCall *SlotMap::create()
{
    auto *call = create_call<MapCall>(answered);
    if (call != nullptr) {
        call->map = this;
        call->slots = call;
        call->add = [](SlotRangeSink &sink, const SlotRange &range) {
            static_cast<MapCall &>(sink).map->add(range);
        };
    }

    return call;
}

/* The next time another node is asked, if it is as good. */
void SlotMap::note_asked(ClusterNode &node)
{
    asked_ = &node;
    asked_at_ = ngx_current_msec;
    ranges_ = 0;

    nodes_->remove(node);
    nodes_->push_back(node);
}

/* Takes a range of the reply while that is being read. */
void SlotMap::add(const SlotRange &range)
{
    if (range.first < 0 || range.last >= kClusterSlots || range.port < 1
        || range.port > 65535) {
        return;
    }

    ClusterNode *node = nodes_->find(*asked_, range.host, range.port);
    if (node == nullptr) {
        return;
    }

    ranges_++;

    for (int64_t slot = range.first; slot <= range.last; slot++) {
        slots[slot] = node;
    }
}

void SlotMap::answered(Node &from, Call &call, Reply *reply)
{
    auto &node = static_cast<ClusterNode &>(from);
    SlotMap &map = *static_cast<MapCall &>(call).map;

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

    for (ClusterNode &node : *nodes_) {
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

    for (ClusterNode &node : *nodes_) {
        if (node.mapped || &node == &teller || !node.is_unused()) {
            continue;
        }

        if (node.seed) {
            node.close();
            continue;
        }

        if (hint_ == &node) {
            hint_ = nullptr;
        }

        nodes_->free(node);
    }
}

} // namespace limit_sliding
