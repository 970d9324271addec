/* Copyright (C) the limit_sliding authors */

/* The map of a cluster: replies to CLUSTER SLOTS and redirections, from any node that a
 * slot leads to, and names of masters that a sentinel tells.  Connections, in whose place
 * there are functions here, are open at once. */

#include "redis/topology/cluster.hpp"

#include <hiredis/hiredis.h>

#include <memory>
#include <vector>

#include "input.hpp"
#include "ngx/strings.hpp"
#include "redis/topology/sentinel.hpp"

using std::string_view;

namespace limit_sliding {

namespace {

/* A call under way, at a node that so is not unused. */
struct Sent {
    Node *node;
    Call *call;
};

std::vector<Sent> calls;
bool is_open;

bool add_call(Node &node, Call *call) {
    calls.push_back({&node, call});
    node.ncalls++;
    return true;
}

Sent take_call() {
    const Sent sent = calls.back();
    calls.pop_back();
    sent.node->ncalls--;
    return sent;
}

/* Only an instantiation may name what is private. */
using NodeList = List<ClusterNode, &ClusterNode::link>;

template <NodeList Cluster::*nodes>
struct Reach {
    friend NodeList &nodes_of(Cluster &cluster) { return cluster.*nodes; }
};

template <ngx_event_t Cluster::*event>
struct ReachEvent {
    friend ngx_event_t &refresh_of(Cluster &cluster) { return cluster.*event; }
};

using CallList = List<Call, &Call::link>;

template <CallList Pipeline::*calls_of_node>
struct ReachCalls {
    friend CallList &calls_of(Pipeline &pipeline) { return pipeline.*calls_of_node; }
};

NodeList &nodes_of(Cluster &cluster);
ngx_event_t &refresh_of(Cluster &cluster);
CallList &calls_of(Pipeline &pipeline);
template struct Reach<&Cluster::nodes_>;
template struct ReachEvent<&Cluster::refresh_>;
template struct ReachCalls<&Pipeline::calls_>;

} // namespace

/* ---- in place of node.cpp and pipeline.cpp ---- */

void Node::init(const NodeContext &context, const NodeRole *role_of_node) {
    settings = context.settings;
    log = context.log;
    topology = role_of_node;
    endpoint = &server;
    static ngx_log_t quiet;
    flush.log = &quiet;
    due.init();
    calls_of(*this).init();
}

bool Node::open() {
    failures = is_open ? 0 : failures + 1;
    retry_at = ngx_current_msec + 100;
    return ready_ = is_open;
}

void Node::fail(ngx_err_t, const char *) {}
bool Node::greet_with(const Credentials &) { return true; }
bool Node::greet_server() { return true; }
void Node::greeted() {}

bool Node::greet(Call *call, Span<const Arg>) { return add_call(*this, call); }

bool Pipeline::command(Call &call, Span<const Arg>) {
    return add_call(static_cast<Node &>(*this), &call);
}

void Pipeline::blame(const Reply &) {}
void Pipeline::disconnect() {}
void Pipeline::drop_calls() {}
void Connection::connect() {}
void Connection::flush() {}

} // namespace limit_sliding

using namespace limit_sliding;

namespace {

ErrorLog error_log;
ngx_str_t seed_name = to_str("10.0.0.1:6379");

Settings settings_of() {
    static u_char memory[sizeof("10.0.0.1")] = "10.0.0.1";
    static ngx_log_t log;
    static ngx_pool_t *pool = ngx_create_pool(4096, &log);
    Settings settings = {};
    Server server = {};
    server.text = seed_name;
    server.url.host = {8, memory};
    server.url.port = 6379;
    (void)settings.servers.add(pool, server);
    return settings;
}

/* Runs what is posted, as the event loop does. */
void run_posted() {
    while (!ngx_queue_empty(&ngx_posted_events)) {
        ngx_queue_t *q = ngx_queue_head(&ngx_posted_events);
        ngx_event_t *ev = ngx_queue_data(q, ngx_event_t, queue);
        ngx_delete_posted_event(ev);
        if (ev->handler != nullptr) { ev->handler(ev); }
    }
}

/* A reader, as a connection has one. */
class Wire {
public:
    Wire() { CHECK(reader_->start()); }

    /* Reads a reply to the call from bytes; nullptr: there is no whole one. */
    Reply *read(const Call &call, string_view bytes) {
        std::vector<u_char> exact(bytes.begin(), bytes.end());
        CHECK(reader_->feed(exact.data(), exact.size()));
        return reader_->next(call.slots, call.texts) == NGX_OK ? &reader_->reply : nullptr;
    }

private:
    std::unique_ptr<Reader> reader_ = std::make_unique<Reader>();
};

class History {
public:
    explicit History(fuzz::Input &input) : input_(input) {
        static const Settings settings = settings_of();
        cluster_ = Cluster::create({nullptr, &settings, &error_log, nullptr});
        CHECK(cluster_ != nullptr);
    }

    /* A cluster lives as long as its worker, and so frees nothing. */
    ~History() {
        for (const Sent &sent : calls) {
            ngx_free(sent.call);
        }

        calls.clear();
        if (refresh_of(*cluster_).posted) { ngx_delete_posted_event(&refresh_of(*cluster_)); }

        for (ClusterNode &node : nodes_of(*cluster_)) {
            if (node.flush.posted) { ngx_delete_posted_event(&node.flush); }

            destroy_on_heap(&node);
        }

        destroy_on_heap(cluster_);
    }

    void step() {
        is_open = input_.byte() % 8 != 0;
        ngx_current_msec += input_.below(3) * 600;
        const auto slot = static_cast<ngx_int_t>(input_.below(kClusterSlots));
        switch (input_.below(4)) {
        case 0:
            redirect(slot);
            break;
        case 1:
            cluster_->set_stale(input_.flag() ? &cluster_->route(slot) : nullptr);
            break;
        default:
            answer();
        }

        run_posted();
        check(slot);
    }

private:
    void redirect(ngx_int_t slot) {
        static Reply reply;
        const string_view text = input_.text();
        reply.type = REDIS_REPLY_ERROR;
        reply.len = std::min(text.size(), sizeof(reply.text));
        ngx_memcpy(reply.text, text.data(), reply.len);

        ClusterNode &from = cluster_->route(slot);
        bool asking = false;
        auto *to = static_cast<ClusterNode *>(cluster_->redirect(from, slot, reply, &asking));
        if (to == nullptr) { return; }

        CHECK(to->server.port != 0 && !to->server.bare_host().empty());
        CHECK(to == &from || text.substr(0, 4) == "ASK " || text.substr(0, 6) == "MOVED ");
        CHECK(asking == (text.substr(0, 4) == "ASK "));
        CHECK(text.substr(0, 6) != "MOVED " || &cluster_->route(slot) == to);
    }

    /* Lets the node that was asked for the slots answer, or fail. */
    void answer() {
        cluster_->set_stale(nullptr);
        run_posted();
        if (calls.empty()) { return; }

        const Sent sent = take_call();
        Wire wire;
        sent.call->handler(*sent.node, *sent.call, wire.read(*sent.call, input_.text()));
    }

    void check(ngx_int_t slot) {
        const uint64_t id = cluster_->route(slot).server.id();
        CHECK(id != 0);
        (void)cluster_->is_worth(slot);
        (void)cluster_->retry();
        run_posted();

        uint64_t last = 0;
        unsigned masters = 0;
        while (ClusterNode *master = cluster_->master_from(last + 1)) {
            CHECK(master->server.id() > last && ++masters <= 1024);
            last = master->server.id();
            if (last == UINT64_MAX) { break; }
        }

        size_t nodes = 0;
        for (const ClusterNode &node : nodes_of(*cluster_)) {
            CHECK(node.server.port != 0 && node.server.host.len != 0);
            nodes++;
        }

        CHECK(nodes >= 1 && nodes <= 1024);
    }

    fuzz::Input &input_;
    Cluster *cluster_;
};

/* A sentinel tells of a master. */
void check_sentinel(fuzz::Input &input) {
    static Settings settings = settings_of();
    auto *node = create_sentinel_node({nullptr, &settings, &error_log, nullptr}, nullptr);
    CHECK(node != nullptr && node->topology->next_server(*node, true));
    CHECK(node->topology->greet(*node) && calls.size() == 1);

    Call *call = take_call().call;
    Wire wire;
    call->handler(*node, *call, wire.read(*call, input.rest()));
    if (node->found) {
        CHECK(node->topology->drained(*node) && node->endpoint == &node->master);
        CHECK(node->master.port != 0 && node->master.host.len != 0);
        CHECK(node->topology->greet(*node) && calls.size() == 1);

        /* it tells its role */
        call = take_call().call;
        Wire master;
        static const string_view replies[]
            = {"*3\r\n$6\r\nmaster\r\n:7\r\n*1\r\n*3\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n0\r\n",
               "*5\r\n$5\r\nslave\r\n$1\r\na\r\n:1\r\n$9\r\nconnected\r\n:7\r\n",
               "-NOPERM no right to this\r\n"};
        const size_t i = node->master.port % std::size(replies);
        Reply *role = master.read(*call, replies[i]);
        CHECK(role != nullptr);
        call->handler(*node, *call, role);
        CHECK((node->master.port == 0) == (i == 1));
    }

    destroy_on_heap(node);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    ngx_queue_init(&ngx_posted_events);
    if (input.below(4) == 0) {
        check_sentinel(input);
        return 0;
    }

    History history(input);
    for (unsigned i = 0; i < 60 && !input.empty(); i++) {
        history.step();
    }

    return 0;
}
