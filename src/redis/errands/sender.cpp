/* Copyright (C) the limit_sliding authors */

#include "redis/errands/sender.hpp"

#include <hiredis/hiredis.h>

#include "ngx/event.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

/* The most nodes that an errand is sent to. */
constexpr ngx_uint_t kHopsMax = 5;

/* Calls that may be under way before further errands wait to fill a call: many errands in one
 * call cost a busy Redis less than many calls. */
constexpr size_t kCallsUnderWay = 4;

/* The same for calls of patient errands alone, so that a request need not wait for their ends. */
constexpr size_t kPatientCalls = 2;

/* The most patient errands of a worker that are under way.  Redis runs so many in a few
 * milliseconds, and a request waits no longer than that.  More of them may take Redis so long that
 * the last one fails, and the connection with it. */
constexpr size_t kPatientMax = 256;

/* The most bytes of calls that the server has not read yet.  Further calls wait for the next
 * reply.  Otherwise, calls for a server that hangs would fill the memory of the worker. */
constexpr size_t kUnsentMax = 256 << 10;

bool is_of_asks(const ErrandKind &kind) { return kind.join != nullptr; }

void make_due(Errand &errand, Node &to) {
    errand.to = &to;
    errand.state = ErrandState::kDue;
    to.due.push_back(errand);
    to.ndue++;
    to.npatient += errand.is_patient;

    to.post_flush();
}

void remove_due(Errand &errand) {
    ErrandList::remove(errand);
    errand.to->ndue--;
    errand.to->npatient -= errand.is_patient;
}

/* Makes an errand idle.  A patient one that was under way leaves its place to one that waits. */
void make_idle(Errand &errand) {
    errand.state = ErrandState::kIdle;
    errand.hops = 0;
    errand.asking = false;
    if (!errand.is_patient) { return; }

    errand.is_patient = false;
    Client &client = errand.redis->client;
    client.npatient--;
    while (!client.patient.empty() && client.npatient < kPatientMax) {
        Errand &next = client.patient.pop_front();
        next.state = ErrandState::kIdle;
        next.kind->resume(next);
    }
}

void fail(Errand &errand, Failure failure) {
    make_idle(errand);
    errand.kind->failed(errand, failure);
}

/* Frees a call without errands, and sends the errands that have waited for its end. */
void end_call(Node &node, ErrandCall &call) {
    node.nask_calls -= is_of_asks(*call.kind);
    ngx_free(&call);
    if (node.ndue != 0) { node.post_flush(); }
}

/* Puts the command of a call into the node's buffer, after ASKING if the errand needs that.
 * Returns false if there is no memory. */
bool put(Node &node, ErrandCall &call) {
    return (!call.errands.front().asking || put_asking(node)) && call.kind->put(node, call);
}

/* Sends a call again if the error shows that it was not run.  Returns true if so. */
bool resend(Node &node, ErrandCall &call, const Reply &reply) {
    Errand &errand = call.errands.front();
    const Redis &redis = *node.redis;
    std::string_view error = view(reply.text, reply.len);
    bool is_again = starts_with(error, "NOSCRIPT") && !call.whole;
    call.whole |= is_again;
    if (!call.was_late && cut_prefix(&error, "LATE ")) {
        /* the reply is in time, so the server's clock was set, or the server is another one */
        const int64_t server_ms = ngx_atoof(bytes(error), error.size());
        if (server_ms > 0) { (void)node.note_clock(server_ms, call.sent_us, clock_us()); }

        call.was_late = is_again = server_ms > 0;
    }

    if (is_again) {
        call.sent_us = 0;
        const bool is_put = put(node, call);
        if (is_put) { node.post_flush(); }
        return is_put;
    }

    Cluster *cluster = redis.client.nodes.cluster;
    if (cluster == nullptr || errand.slot < 0) { return false; }

    /* a call has one errand in a cluster */
    bool asking;
    Node *to = cluster->redirect(node, errand.slot, reply, &asking);
    if (to == nullptr || errand.hops >= kHopsMax
        || ngx_current_msec - errand.since >= redis.settings.timeout) {
        return false;
    }

    ErrandList::remove(errand);
    end_call(node, call);
    if (errand.kind->returned != nullptr) { errand.kind->returned(errand); }

    errand.hops++;
    errand.asking = asking;
    make_due(errand, *to);
    return true;
}

/* The handler of calls. */
void call_ended(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<ErrandCall &>(to);
    auto failure = Failure::kLost;
    if (reply != nullptr && reply->type == REDIS_REPLY_ERROR) {
        if (resend(node, call, *reply)) { return; }

        failure = Failure::kRefused;
        const std::string_view error = view(reply->text, reply->len);
        /* the name may mean another server by now */
        if (starts_with(error, "READONLY") || starts_with(error, "MASTERDOWN")) {
            node.set_broken("it is a replica");
        }
    }

    if (reply != nullptr) { call.kind->answered(node, call, *reply); }

    if (!call.errands.empty() && is_of_asks(*call.kind)) {
        add(&node.redis->client.calls->failed, 1);
    }

    while (!call.errands.empty()) {
        fail(call.errands.pop_front(), failure);
    }

    end_call(node, call);
}

/* Sends the errands that wait for a map of slots, after it has come; or fails them if no node can
 * be connected to. */
void send_unrouted(Client &client) {
    for (Errand &errand : client.unrouted) {
        const bool is_known = client.nodes.route(errand) != nullptr;
        if (!is_known && client.nodes.cluster->route(0).is_usable()) { return; }

        withdraw(errand);
        if (is_known) {
            send(errand);
        } else {
            fail(errand, Failure::kUnsent);
        }
    }
}

/* Fails the due errands of a node that cannot be connected to, except for those whose slots are at
 * another node by now. */
void fail_due(Node &node) {
    Nodes &nodes = node.redis->client.nodes;
    for (Errand &errand : node.due) {
        remove_due(errand);
        const bool may_go = nodes.is_cluster() && !errand.asking && errand.hops < kHopsMax;
        Node *to = may_go ? nodes.route(errand) : nullptr;
        if (to == nullptr || to == &node || !to->is_usable()) {
            fail(errand, Failure::kUnsent);
            continue;
        }

        if (errand.hops++ == 0) { errand.since = ngx_current_msec; }

        make_due(errand, *to);
    }
}

/* Puts a call of due errands into the node's buffer.  Returns false if there is no memory. */
bool send_call(Node &node) {
    auto *call = create_call<ErrandCall>(call_ended);
    if (call == nullptr) { return false; }

    const ErrandKind &kind = *node.due.front().kind;
    node.nask_calls += is_of_asks(kind);
    call->kind = &kind;
    call->errands.init();
    for (Errand &errand : node.due) {
        if (errand.kind->put != kind.put
            || (is_of_asks(kind) ? !errand.kind->join(*call, errand) : call->nerrands != 0)) {
            break;
        }

        remove_due(errand);
        call->errands.push_back(errand);
        call->nerrands++;
        errand.state = ErrandState::kInCall;
        if (errand.hops == 0) { errand.since = ngx_current_msec; }
    }

    const bool is_put = put(node, *call);
    if (!is_put) { call_ended(node, *call, nullptr); }
    return is_put;
}

/* Returns true if a call of due errands must be sent, though other calls are under way. */
bool is_call_due(const Node &node) {
    if (node.nask_calls != 0 && node.unsent() >= kUnsentMax) { return false; }

    const size_t most = node.ndue == node.npatient ? kPatientCalls : kCallsUnderWay;

    return node.ndue >= kErrandsPerCall
           || (node.ndue != 0 && (node.redis->client.nodes.is_cluster() || node.nask_calls < most));
}

void flush_due(ngx_event_t *event) {
    Node &node = *static_cast<Node *>(event->data);
    Client &client = node.redis->client;
    Nodes &nodes = client.nodes;
    /* this turn of the event loop may have taken long, but waits have all of their time from now */
    ngx_time_update();
    while (!client.joined.empty()) {
        const ngx_msec_t timeout = node.settings->timeout;
        Waiter &waiter = client.joined.pop_front();
        waiter.until = ngx_current_msec + timeout;
        client.waiting.push_back(waiter);
        client.deadline.cancelable = 0;
        if (!client.deadline.timer_set) { ngx_add_timer(&client.deadline, timeout); }
    }

    if (nodes.is_cluster()) {
        send_unrouted(client);
        for (Errand &errand : node.due) {
            Node *to = nodes.route(errand);
            if (to != &node && to != nullptr && !errand.asking) {
                remove_due(errand);
                make_due(errand, *to);
            }
        }
    }

    if (node.ndue == 0 && node.unsent() == 0) { return; }

    if (!node.is_ready()) {
        if (!node.open()) { fail_due(node); }
        return;
    }

    while (is_call_due(node)) {
        if (!send_call(node)) {
            node.fail(0, "no memory");
            return;
        }
    }

    node.send();
    if (nodes.watch != nullptr) { watch_master(*nodes.watch); }
}

/* Returns the ms after which an errand fails that waits for a map. */
ngx_msec_t patience_ms(const Redis &redis) {
    return redis.settings.connect_timeout + redis.settings.timeout;
}

/* Fails the errands that have waited too long. */
void fail_unrouted(Client &client) {
    while (!client.unrouted.empty()) {
        Errand &errand = client.unrouted.front();
        const ngx_msec_int_t left = ms_until(errand.since + patience_ms(*errand.redis));
        if (left > 0) {
            ngx_add_timer(&client.unrouted_timer, static_cast<ngx_msec_t>(left));
            return;
        }

        ErrandList::remove(errand);
        fail(errand, Failure::kUnsent);
    }
}

} // namespace

const ClientEvents kSenderEvents = {flush_due,
                                    [](Node &node) {
                                        add(&node.redis->client.calls->failed, 1);
                                        fail_due(node);
                                        send_unrouted(node.redis->client);
                                    },
                                    node_failed};

void node_answered(Node &node) {
    Redis &redis = *node.redis;
    node.succeeded();
    if (redis.shared->breaker.succeeded()) {
        /* the level is that of the line about the failure, so that a log has both or none */
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "limit_sliding redis \"%V\" answers again",
                      &redis.settings.name);
    }
}

void node_failed(Node &node) {
    Redis &redis = *node.redis;
    Client &client = redis.client;
    client.failed = ngx_current_msec;
    if (client.nodes.is_cluster() && client.nodes.cluster->is_alive_without(node)) {
        /* the other nodes still answer */
        return;
    }

    if (redis.shared->breaker.failed(ngx_current_msec, static_cast<uint32_t>(ngx_random()))) {
        add(&client.calls->opened, 1);
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "limit_sliding redis \"%V\" has failed repeatedly, "
                      "\"on_error %s\" applies until it answers again",
                      &redis.settings.name,
                      kOnErrorWords[index_of(redis.settings.on_error)].data());
    }
}

bool must_wait(Errand &errand) {
    Client &client = errand.redis->client;
    if (client.npatient < kPatientMax) { return false; }

    errand.state = ErrandState::kPatient;
    client.patient.push_back(errand);
    return true;
}

void send_patiently(Errand &errand) {
    if (must_wait(errand)) { return; }

    errand.is_patient = true;
    errand.redis->client.npatient++;
    send(errand);
}

void send(Errand &errand) {
    Client &client = errand.redis->client;
    if (Node *to = client.nodes.route(errand)) {
        make_due(errand, *to);
        return;
    }

    errand.state = ErrandState::kUnrouted;
    errand.since = ngx_current_msec;
    client.unrouted.push_back(errand);
    client.nodes.cluster->set_stale(nullptr);
    client.nodes.cluster->route(0).post_flush();
    if (!client.unrouted_timer.timer_set) {
        ngx_add_timer(&client.unrouted_timer, patience_ms(*errand.redis));
    }
}

void withdraw(Errand &errand) {
    if (errand.state == ErrandState::kDue) {
        remove_due(errand);
    } else if (errand.state == ErrandState::kUnrouted || errand.state == ErrandState::kPatient) {
        ErrandList::remove(errand);
    }
    make_idle(errand);
}

Errand &take_errand(ErrandCall &call) {
    Errand &errand = call.errands.pop_front();
    make_idle(errand);
    return errand;
}

bool put_asking(Node &node) {
    static constexpr Arg kAsking[] = {"ASKING"};
    /* a server that refuses ASKING refuses the next command as well */
    Call *asking = create_call([](Node &, Call &answered, Reply *) { ngx_free(&answered); });
    if (asking != nullptr && node.command(*asking, kAsking)) { return true; }

    ngx_free(asking);
    return false;
}

void init_sender(Client &client) {
    client.patient.init();
    client.unrouted.init();
    init_event<fail_unrouted>(client.unrouted_timer, client);
}

} // namespace limit_sliding
