/* Copyright (C) the limit_sliding authors */

#include "redis/topology/cluster.hpp"

#include <algorithm>

#include <hiredis/hiredis.h>

#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/shared/breaker.hpp"

namespace limit_sliding {

namespace {

/* The shortest time in ms between two requests for the slots. */
constexpr ngx_msec_t kRefreshInterval = 1000;

/* The most known nodes.  Further nodes are ignored. */
constexpr size_t kNodesMax = 1024;

/* The number of consecutive failures after which a node has failed. */
constexpr ngx_uint_t kFailuresMax = kBreakerFailures;

constexpr Arg kSlotsCommand[] = {"CLUSTER", "SLOTS"};

ClusterNode &cluster_node(Node &node) { return static_cast<ClusterNode &>(node); }

/* Returns how likely a node is to reply: the highest value if it is ready and has no failures; 0
 * if a call is late, or the node must not be connected to yet; else more for fewer failures, and
 * for an open connection. */
ngx_uint_t rank(ClusterNode &node) {
    if (node.is_late(kRefreshInterval)) { return 0; }

    if (node.is_ready() && node.failures == 0) { return NGX_MAX_INT32_VALUE; }

    return node.is_usable()
               ? 2 * (kFailuresMax - std::min(node.failures, kFailuresMax)) + !node.is_closed() + 1
               : 0;
}

/* Lets requests wait for the node again, since it replies, if only with an error.  After one more
 * failure it is a failed node again. */
void time_received(Node &node, Call &call, Reply *reply) {
    ngx_free(&call);
    if (reply != nullptr) {
        node.failures = kFailuresMax - 1;
        node.greeted();
    }
}

/* Adds TIME to the greeting of a failed node, which may hang.  The script needs TIME, too. */
bool greet(Node &greeted) {
    constexpr Arg kTime[] = {"TIME"};
    ClusterNode &node = cluster_node(greeted);
    return node.greet_server()
           && (!node.has_failed() || node.greet(create_call(time_received), kTime))
           && node.cluster->ask_new(node);
}

const NodeRole role = {greet, nullptr, nullptr,
                       [](Node &failed) { cluster_node(failed).cluster->set_stale(nullptr); }};

} // namespace

bool ClusterNode::has_failed() const { return failures >= kFailuresMax; }

Cluster *Cluster::create(const NodeContext &context) {
    auto *cluster = create_on_heap<Cluster>();
    if (cluster == nullptr) { return nullptr; }

    cluster->nodes_.init();
    cluster->context_ = context;
    cluster->stale_ = true;
    init_event<&Cluster::refresh>(cluster->refresh_, *cluster);
    for (const Server &server : context.settings->servers) {
        if (ClusterNode *node = cluster->add_node()) {
            node->server.set(server);
            node->seed = true;
        }
    }

    if (!cluster->nodes_.empty()) { return cluster; }

    destroy_on_heap(cluster);
    return nullptr;
}

void Cluster::close() {
    for (ClusterNode &node : nodes_) {
        node.close();
    }
}

ClusterNode *Cluster::add_node() {
    auto *node = create_on_heap<ClusterNode>();
    if (node != nullptr) {
        node->init(context_, &role);
        node->cluster = this;
        node->add = add_range;
        nodes_.push_back(*node);
        nnodes_++;
    }
    return node;
}

void Cluster::free_node(ClusterNode &node) {
    node.close();
    unpost_event(node.flush);
    if (hint_ == &node) { hint_ = nullptr; }

    nodes_.remove(node);
    nnodes_--;
    destroy_on_heap(&node);
}

/* Returns the node that `teller` has named, or adds it.  No host, or "?", means the host of
 * `teller`.  nullptr: there is no memory, the address is invalid, or there are too many nodes. */
ClusterNode *Cluster::find(const ClusterNode &teller, std::string_view host, int64_t port) {
    if (host.empty() || host[0] == '?') { host = teller.server.bare_host(); }

    for (ClusterNode &node : nodes_) {
        if (node.server.port == port && is_same_name(node.server.bare_host(), host)) {
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

/* Returns the node in "slot host:port", where the host may have colons.  Ignores the slot, which
 * is that of the call. */
ClusterNode *Cluster::find_target(const ClusterNode &teller, std::string_view target) {
    size_t blank = target.find(' ');
    size_t colon = target.rfind(':');
    if (blank == target.npos || colon == target.npos || colon < blank) { return nullptr; }

    u_char *host = bytes(target) + blank + 1;
    u_char *port = bytes(target) + colon + 1;
    return find(teller, view(host, port - 1 - host), ngx_atoi(port, target.size() - colon - 1));
}

/* Returns the node that is likeliest to reply.  There is one, because seeds stay. */
ClusterNode &Cluster::any() {
    ClusterNode *best = &nodes_.front();
    for (ClusterNode &node : nodes_) {
        if (rank(node) > rank(*best)) { best = &node; }
    }
    return *best;
}

ClusterNode &Cluster::route(ngx_int_t slot) {
    return slots_[slot] != nullptr ? *slots_[slot] : any();
}

Node *Cluster::route(const Errand &errand) {
    if (errand.slot != kMasterSlot) { return &route(errand.slot); }

    if (!loaded_) { return nullptr; }

    ClusterNode *master = master_from(errand.master);
    return master != nullptr ? master : &route(0);
}

bool Cluster::is_worth(ngx_int_t slot) {
    ClusterNode &node = route(slot);
    /* the node may have been replaced */
    if (node.failures != 0 || node.is_late(kRefreshInterval)) { stale_ = true; }

    if (stale_) { post_event(refresh_); }

    return node.is_usable() && (!node.has_failed() || node.is_unused());
}

ClusterNode *Cluster::master_from(uint64_t id) {
    ClusterNode *least = nullptr;
    for (ClusterNode &node : nodes_) {
        uint64_t its = node.server.id();
        if (node.mapped && its >= id && (least == nullptr || its < least->server.id())) {
            least = &node;
        }
    }
    return least;
}

ngx_msec_t Cluster::retry() {
    ngx_msec_t wait = NGX_MAX_INT32_VALUE;
    for (ClusterNode &node : nodes_) {
        const bool is_tried = node.has_failed() || node.attempt_failed;
        if (!is_tried || !node.is_closed() || (loaded_ && !node.mapped)) { continue; }

        if (node.is_usable()) {
            (void)node.open();
        } else {
            wait = std::min(wait, node.retry_at - ngx_current_msec);
        }
    }
    return wait;
}

/* Ignores nodes that only a redirection has named: such a node may have no slots, or be the
 * failed server itself. */
bool Cluster::is_alive_without(const Node &failed) {
    for (ClusterNode &node : nodes_) {
        if (&node != &failed && node.failures == 0 && node.is_ready()
            && (node.mapped || node.seed)) {
            return true;
        }
    }
    return false;
}

Node *Cluster::redirect(Node &from, ngx_int_t slot, const Reply &reply, bool *asking) {
    ClusterNode &node = cluster_node(from);
    std::string_view error = view(reply.text, reply.len);
    *asking = cut_prefix(&error, "ASK ");
    if (*asking) { return find_target(node, error); }

    if (cut_prefix(&error, "MOVED ")) {
        ClusterNode *to = find_target(node, error);
        if (to != nullptr) {
            slots_[slot] = to;
            set_stale(&node);
        }
        return to;
    }

    /* The slot is moving, and the key, which existed when the call began, is gone.  The node
     * redirects the next ask. */
    if (ngx_strlcasestrn(bytes(error), bytes(error) + error.size(), bytes("non local key"), 13 - 1)
        != nullptr) {
        return &node;
    }

    if (starts_with(error, "CLUSTERDOWN")) { set_stale(&node); }
    return nullptr;
}

void Cluster::set_stale(ClusterNode *hint) {
    stale_ = true;
    hint_ = hint;
    post_event(refresh_);
}

/* Asks for the slots if they are stale, at most once in kRefreshInterval.  After a failure, later
 * requests try again. */
void Cluster::refresh() {
    if (!stale_ || is_asking() || (loaded_ && ngx_current_msec - asked_at_ < kRefreshInterval)) {
        return;
    }

    ClusterNode &node = hint_ != nullptr && hint_->is_ready() ? *hint_ : any();
    hint_ = nullptr;
    if (!node.is_ready()) {
        /* ask_new() asks the node once it is connected */
        (void)node.open();
        return;
    }

    Call *call = create_slots_call(node);
    if (call == nullptr || !node.command(*call, kSlotsCommand)) {
        ngx_free(call);
        return;
    }

    note_asked(node);
    node.send();
}

/* Returns true while a node has time to send the slots; after that, another node may be asked. */
bool Cluster::is_asking() const {
    return asked_ != nullptr && ngx_current_msec - asked_at_ < kRefreshInterval;
}

bool Cluster::ask_new(ClusterNode &node) {
    if (!stale_ || is_asking() || (loaded_ && &any() != &node)) { return true; }

    if (!node.greet(create_slots_call(node), kSlotsCommand)) { return false; }

    note_asked(node);
    return true;
}

Call *Cluster::create_slots_call(ClusterNode &node) {
    Call *call = create_call(answered);
    if (call != nullptr) { call->slots = &node; }
    return call;
}

/* Moves the node to the end of the list, so that another node that is as good is asked next. */
void Cluster::note_asked(ClusterNode &node) {
    asked_ = &node;
    asked_at_ = ngx_current_msec;
    ranges_ = 0;
    nodes_.remove(node);
    nodes_.push_back(node);
}

/* Sets the node of a range of slots while the reply is being read. */
void Cluster::add_range(SlotRangeSink &sink, const SlotRange &range) {
    auto &teller = static_cast<ClusterNode &>(sink);
    Cluster &cluster = *teller.cluster;
    if (cluster.asked_ != &teller || range.first < 0 || range.last >= kClusterSlots
        || range.port < 1 || range.port > 65535) {
        return;
    }

    if (ClusterNode *node = cluster.find(teller, range.host, range.port)) {
        cluster.ranges_++;
        for (int64_t slot = range.first; slot <= range.last; slot++) {
            cluster.slots_[slot] = node;
        }
    }
}

void Cluster::answered(Node &from, Call &call, Reply *reply) {
    ClusterNode &node = cluster_node(from);
    Cluster &cluster = *node.cluster;
    const bool is_last = cluster.asked_ == &node;
    ngx_free(&call);
    if (is_last) { cluster.asked_ = nullptr; }

    if (reply == nullptr) { return; }

    if (reply->type == REDIS_REPLY_ARRAY && (cluster.ranges_ != 0 || !is_last)) {
        if (is_last) { cluster.changed(node); }

        if (!node.is_ready()) { node.greeted(); }
        return;
    }

    /* another node may know the slots */
    const char *reason
        = reply->type == REDIS_REPLY_ERROR ? reply_text(reply) : "it knows of no slots";
    if (node.is_ready()) {
        node.log->write(0, "%V: %s", &node.endpoint->text, reason);
    } else {
        node.set_broken(reason);
    }
}

/* Sends due errands to the nodes that have their slots now, and errands that wait for a map.
 * Frees unused nodes without slots, except for `teller`; closes them if they are seeds. */
void Cluster::changed(ClusterNode &teller) {
    loaded_ = true;
    stale_ = false;
    teller.post_flush();
    for (ClusterNode &node : nodes_) {
        node.mapped = false;
        if (node.ndue != 0) { node.post_flush(); }
    }

    for (ClusterNode *node : slots_) {
        if (node != nullptr) { node->mapped = true; }
    }

    for (ClusterNode &node : nodes_) {
        if (node.mapped || &node == &teller || !node.is_unused()) { continue; }

        if (node.seed) {
            node.close();
        } else {
            free_node(node);
        }
    }
}

} // namespace limit_sliding
