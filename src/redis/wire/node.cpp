/* Copyright (C) the limit_sliding authors */

#include "redis/wire/node.hpp"

#include <hiredis/hiredis.h>

#include "ngx/event.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

/* The shortest and longest time in ms between attempts to connect; failures prolong it. */
constexpr ngx_msec_t kRetryMin = 100;
constexpr ngx_msec_t kRetryMax = 1000;

Node &node_of(Connection &connection) { return static_cast<Node &>(connection); }

void status_received(Node &node, Call &call, Reply *reply) {
    ngx_free(&call);
    if (reply == nullptr) { return; }

    if (reply->type == REDIS_REPLY_STATUS) {
        node.greeted();
    } else {
        node.blame(*reply);
    }
}

} // namespace

const ConnectionEvents Node::node_events = {
    /* opened: sends the greeting; other commands wait until all of the greeting has succeeded */
    [](Connection &connection) {
        Node &node = node_of(connection);
        if (!node.reader_.start()) {
            node.fail(0, "no memory");
            return;
        }

        /* one more than the commands, so that no reply ends the greeting before all are sent */
        node.greetings_ = 1;
        if (node.topology->greet(node)) {
            node.greeted();
            node.send();
        }
    },

    /* received */
    Pipeline::received,

    /* drained */
    [](Connection &connection) {
        Node &node = node_of(connection);
        if ((node.topology->drained != nullptr && node.topology->drained(node)) || !node.is_ready()
            || node.ncalls != 0) {
            return;
        }

        if (ngx_exiting && node.ndue == 0 && !node.is_kept) {
            node.close();
        } else {
            node.set_idle(!node.is_kept);
        }
    },

    /* failed */
    [](Connection &connection, ngx_err_t err, const char *reason) {
        node_of(connection).fail(err, reason);
    },

    /* unwanted */
    [](Connection &connection) {
        Node &node = node_of(connection);
        node.close();
        node.drop_calls();
    }};

void Node::init(const NodeContext &context, const NodeRole *role_of_node) {
    Pipeline::init(this);
    connection_events = &node_events;
    settings = context.settings;
    log = context.log;
    known_addresses = context.known_addresses;
    redis = context.redis;
    events = context.events;
    topology = role_of_node;
    endpoint = &server;

    const ngx_time_t &utc = *ngx_timeofday();
    clock_ahead_ms = utc.sec * 1000 + static_cast<int64_t>(utc.msec - clock_us() / 1000);
    clock_least_ms = INT64_MIN / 2;

    due.init();
    flush.data = this;
    flush.log = ngx_cycle->log;
    if (events != nullptr) { flush.handler = events->flush; }
}

bool Node::open() {
    if (!is_closed()) { return true; }

    if (!is_usable()) { return false; }

    if (topology->next_server != nullptr) { (void)topology->next_server(*this, true); }

    attempt_failed = false;
    ngx_time_update(); /* it may be old */
    connect_until_ = ngx_current_msec + settings->connect_timeout;
    ngx_add_timer(&timer_, settings->connect_timeout);
    connect();
    return true;
}

int64_t Node::note_clock(int64_t server_ms, uint64_t sent_us, uint64_t now_us) {
    /* clocks are adjusted, too, by less than this */
    constexpr int64_t kStepMs = 100;
    const int64_t most_ms = server_ms - static_cast<int64_t>(sent_us / 1000);
    const int64_t back_ms = clock_least_ms - most_ms;
    clock_ahead_ms = most_ms;
    clock_least_ms = server_ms - static_cast<int64_t>(now_us / 1000);
    return back_ms > kStepMs ? back_ms : 0;
}

bool Node::greet(Call *call, Span<const Arg> args) {
    if (call == nullptr || !command(*call, args)) {
        ngx_free(call);
        fail(0, "no memory");
        return false;
    }

    greetings_++;
    return true;
}

bool Node::greet_with(const Credentials &credentials) {
    const auto &[user, text, file] = credentials;
    const std::string_view password = file != nullptr ? file->current(*log) : view(text);
    authenticates_ = credentials.has_password();
    if (user.len == 0 && password.empty()) { return true; }

    const Arg all[] = {"AUTH", view(user), password};
    const Arg some[] = {"AUTH", password};
    Call *call = create_call(status_received);
    return user.len != 0 ? greet(call, all) : greet(call, some);
}

bool Node::greet_server() {
    if (!greet_with(settings->credentials)) { return false; }

    if (settings->database == 0) { return true; }

    u_char number[NGX_INT_T_LEN];
    u_char *end = ngx_sprintf(number, "%ui", settings->database);
    const Arg args[] = {"SELECT", view(number, end - number)};
    return greet(create_call(status_received), args);
}

void Node::greeted() {
    if (--greetings_ == 0) {
        attempt_failed = false;
        nconnected++;
        ready_ = true;
        stop_timer(timer_);
        set_idle(true);
        post_flush();
    }
}

void Node::fail(ngx_err_t err, const char *reason) {
    bool was_ready = is_ready();
    if (!answered_) { next_address(); }

    bool rested = was_ready && !is_broken() && ncalls == 0 && ndue == 0;

    if (reason != nullptr && settings->topology == Topology::kCluster) {
        log->write(err, "%V: %s", &endpoint->text, reason);
    } else if (reason != nullptr) {
        log->write(err, "%s", reason);
    }

    if (topology->next_server != nullptr && topology->next_server(*this, false)) {
        reconnect();
        return;
    }

    close();
    if (events == nullptr) {
        drop_calls();
        return;
    }

    back_off();
    /* the server may have closed an idle connection on purpose */
    if (!rested && !attempt_failed) { events->failed(*this); }

    attempt_failed = !was_ready;

    drop_calls();
    if (topology->failed != nullptr) { topology->failed(*this); }

    if (!was_ready) {
        events->unreachable(*this);
    } else if (ndue != 0) {
        post_flush();
    }
}

/* Delays the next attempt to connect, but not after the first failure of a server that has
 * replied: it may have been restarted. */
void Node::back_off() {
    if (failures++ == 0 && answered_) {
        retry_at = ngx_current_msec;
        answered_ = false;
        return;
    }

    ngx_msec_t delay = kRetryMin << ngx_min(failures - 1, 4);
    delay = ngx_min(delay, kRetryMax);
    retry_at = ngx_current_msec + delay / 2 + ngx_random() % (delay / 2);
}

} // namespace limit_sliding
