/* Copyright (C) the limit_sliding authors */

#include "http/api/key.hpp"

#include <algorithm>

#include "core/limiter.hpp"
#include "core/zone.hpp"
#include "http/api/response.hpp"
#include "http/configuration.hpp"
#include "http/key_text.hpp"
#include "http/limit_orders.hpp"
#include "http/rate.hpp"
#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* ---- requests ---- */

constexpr ngx_uint_t kWrites = NGX_HTTP_PUT | NGX_HTTP_DELETE | NGX_HTTP_POST;

struct WaitedOrder;

struct KeyRequest {
    ngx_http_request_t *request;
    ZoneConf *zone;
    ngx_str_t key;
    ngx_str_t rate; /* PUT: as given */

    /* The key's own limit, kLimitUnset or kUnlimited: the one that PUT sets,
     * and later the one that the key has. */
    uint64_t own;

    int64_t cost;   /* POST: what is charged, or given back if it is negative */
    uint64_t limit; /* if it has none of its own; the largest if unlimited */
    bool unlimited; /* its last request had no limit, or that is not known */

    Claim claim; /* consumes nothing */
    Verdict verdict;

    /* For a key of this node, whose PUT the request waits for. */
    WaitedOrder *order;

    /* For a key in Redis, whose answer the request waits for. */
    RemoteClaim remote;
    Waiter waiter;
    enum { kLooks, kCommands, kLooksAgain } step;
};

/* Reads an argument as it was before it was encoded for the request line.
 * False: it is not there, empty, or encoded wrongly. */
bool read_arg(ngx_http_request_t *r, std::string_view name, ngx_str_t *value) {
    ngx_str_t arg;
    if (ngx_http_arg(r, bytes(name), name.size(), &arg) != NGX_OK || arg.len == 0) { return false; }

    const u_char *last = arg.data + arg.len;
    for (u_char *p = arg.data; p < last; p++) {
        if (*p == '%' && (last - p < 3 || ngx_hextoi(p + 1, 2) == NGX_ERROR)) { return false; }
    }

    /* An address may take the place of its text. */
    u_char *dst = alloc_bytes(r->pool, std::max<size_t>(arg.len, 16));
    if (dst == nullptr) { return false; }

    value->data = dst;
    ngx_unescape_uri(&dst, &arg.data, arg.len, 0);
    value->len = dst - value->data;
    return true;
}

bool read_rate(KeyRequest &key) {
    if (!read_arg(key.request, "rate", &key.rate)) { return false; }

    const std::string_view rate = view(key.rate);
    if (rate == "off" || rate == "default") {
        key.own = rate == "off" ? kUnlimited : kLimitUnset;
        return true;
    }

    return parse_rate(key.rate, key.zone->policy.window_ms, key.zone->limit_max(), key.own);
}

/* Reads "5" or "-5"; 0 and what is above 2^53 are no costs. */
bool read_cost(KeyRequest &key) {
    ngx_str_t text;
    if (!read_arg(key.request, "cost", &text)) { return false; }

    const bool is_negative = text.data[0] == '-';
    ngx_str_t digits = {text.len - is_negative, text.data + is_negative};
    uint64_t cost;
    if (!parse_settled(digits, cost) || cost == 0) { return false; }

    key.cost = is_negative ? -static_cast<int64_t>(cost) : static_cast<int64_t>(cost);
    return true;
}

/* Charges the key in this node's memory by hand, or gives back. */
void charge_here(const KeyRequest &key) {
    Claim claim = key.claim;
    claim.verdict = nullptr;
    claim.fit_core();

    if (key.cost > 0) {
        charge(claim, key.cost, ngx_current_msec);
    } else {
        give_back(claim, -key.cost, ngx_current_msec);
    }
}

/* Makes the claim with the limit of a key that has none of its own: that of its
 * last request, if a variable said it, or the zone's. */
void init_claim(KeyRequest &key) {
    ZoneConf &zone = *key.zone;
    Claim &claim = key.claim;

    claim.zone = zone.memory.table;
    claim.policy = &zone.policy;
    claim.counts = &zone.worker.counters->slots;
    claim.purpose = Purpose::kLook;
    claim.hash = zone.memory.table->hash(view(key.key));

    uint64_t last
        = zone.variable ? zone.memory.aside.variable_limits->find(claim.hash).limit : kLimitUnset;
    if (last == kLimitUnset) { last = zone.limit; }

    /* A counter has used as much whatever the limit. */
    key.unlimited = last == kLimitUnset || last == kUnlimited;
    key.limit = key.unlimited ? zone.limit_max() : last;
    claim.limit = key.limit;
}

/* Forgets the key's state in this node's memory. */
void forget_here(const KeyRequest &key) {
    key.claim.forget(ngx_current_msec);
    key.zone->memory.aside.offenders->forget(key.claim.hash);
}

ngx_int_t send_key(const KeyRequest &key) {
    return send_json(key.request, NGX_HTTP_OK, [&](Json &json) {
        const auto known_field = [&](const char *name, bool is_known, uint64_t value) {
            json.field(name, is_known ? &value : nullptr);
        };

        const Policy &policy = key.zone->policy;
        const Verdict &verdict = key.verdict;
        const bool has_limit = !key.unlimited && key.own != kUnlimited;

        /* A bucket fills at a rate that only a request knows. */
        const bool is_known = !key.unlimited
                              || (policy.algorithm != Algorithm::kTokenBucket
                                  && policy.algorithm != Algorithm::kLeakyBucket);

        json.field("zone", key.zone->name);
        write_key(json, *key.zone, view(key.key));

        if (key.own == kUnlimited) {
            json.field("own_limit", "off");
        } else {
            json.field("own_limit", key.own != kLimitUnset);
        }

        known_field("limit", has_limit, key.claim.limit);
        known_field("remaining", has_limit, verdict.remaining);
        known_field("used", is_known, policy.used(verdict));
        known_field("reset", is_known, seconds(verdict.reset_ms));
        known_field("reset_ms", is_known, verdict.reset_ms);
    });
}

/* What nothing limits has no count. */
ngx_int_t send_unlimited(const KeyRequest &key) {
    return send_error(key.request, NGX_HTTP_CONFLICT, "the key has no limit, or it is not known");
}

/* ---- in shared memory ---- */

ngx_int_t answer_local(KeyRequest &key) {
    Claim &claim = key.claim;
    OwnLimit own = {};
    key.zone->memory.aside.own_limits->find(claim.hash, ngx_time(), &own);

    key.own = own.limit;
    if (own.is_limited()) {
        claim.limit = own.limit;
        key.unlimited = false;
    }

    if (key.request->method == NGX_HTTP_DELETE) { forget_here(key); }

    if (key.request->method == NGX_HTTP_POST) {
        if (key.unlimited || key.own == kUnlimited) { return send_unlimited(key); }

        charge_here(key);
    }

    acquire(&claim, 1, ngx_current_msec);
    key.verdict = claim.describe(ngx_current_msec);
    return send_key(key);
}

/* An order, with the request that waits for it. */
struct WaitedOrder {
    LimitOrder order;
    KeyRequest *waiting; /* null: its client has left */
};

ngx_int_t answer_order(KeyRequest &key, LimitOrder::Result result) {
    switch (result) {
    case LimitOrder::Result::kDone:
        return answer_local(key);
    case LimitOrder::Result::kNoRoom:
        return send_error(key.request, NGX_HTTP_INSUFFICIENT_STORAGE,
                          "no room for another limit of a key");
    case LimitOrder::Result::kDiskFull:
        return send_error(key.request, NGX_HTTP_INSUFFICIENT_STORAGE,
                          "no room in the file of limits");
    case LimitOrder::Result::kReplaced:
        return send_error(key.request, NGX_HTTP_SERVICE_UNAVAILABLE,
                          "the file of limits was replaced, and needs a reload");
    default:
        return send_error(key.request, NGX_HTTP_INTERNAL_SERVER_ERROR,
                          "the file of limits cannot be written, see the log");
    }
}

void end_order(WaitedOrder &waited) {
    KeyRequest *key = waited.waiting;
    const auto result = waited.order.result;
    if (key != nullptr) { key->order = nullptr; }

    ngx_free(&waited);
    if (key == nullptr) { return; }

    ngx_connection_t *c = key->request->connection;
    ngx_http_set_log_request(c->log, key->request);
    ngx_http_finalize_request(key->request, answer_order(*key, result));
    ngx_http_run_posted_requests(c);
}

/* Makes an order in one piece of memory with its texts. */
WaitedOrder *make_order(KeyRequest &key) {
    const size_t texts = key.key.len + key.rate.len;
    auto *memory = static_cast<u_char *>(
        ngx_alloc(sizeof(WaitedOrder) + texts, key.request->connection->log));
    if (memory == nullptr) { return nullptr; }

    u_char *p = memory + sizeof(WaitedOrder);
    auto *waited = new (memory) WaitedOrder();
    LimitOrder &order = waited->order;
    order.zone = key.zone;
    order.key = view(p, key.key.len);
    p = append(p, view(key.key));
    order.hash = key.claim.hash;
    order.own = {key.own, {}};
    order.text = {key.rate.len, p};
    append(p, view(key.rate));
    init_event<end_order>(order.done, *waited);
    waited->waiting = &key;
    return waited;
}

/* Lets the request wait, for what `leave` ends if the client leaves. */
ngx_int_t wait(KeyRequest &key, ngx_http_cleanup_t *cln, ngx_http_cleanup_pt leave) {
    ngx_http_request_t *r = key.request;
    cln->handler = leave;
    cln->data = &key;

    r->main->count++;
    r->write_event_handler = ngx_http_request_empty_handler;

    if (!r->discard_body) { r->read_event_handler = ngx_http_test_reading; }

    return NGX_DONE;
}

ngx_int_t handle_local(KeyRequest &key) {
    if (key.request->method != NGX_HTTP_PUT) { return answer_local(key); }

    ngx_http_cleanup_t *cln = ngx_http_cleanup_add(key.request, 0);
    key.order = cln != nullptr ? make_order(key) : nullptr;
    if (key.order == nullptr) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    order_limit(key.order->order);
    return wait(key, cln, [](void *data) {
        auto *order = static_cast<KeyRequest *>(data)->order;
        if (order != nullptr) { order->waiting = nullptr; }
    });
}

/*
 * ---- in Redis ----
 *
 * The request looks at the key, which makes sure of a connection.  If it is to
 * change the key, it then sends a command and looks again.  These functions
 * return NGX_AGAIN while it goes on to wait.
 */

ngx_int_t wait_or_fail(const KeyRequest &key, bool waits) {
    return waits ? NGX_AGAIN
                 : send_error(key.request, NGX_HTTP_SERVICE_UNAVAILABLE, "redis does not answer");
}

ngx_int_t look(KeyRequest &key) {
    key.claim.limit = key.limit;
    key.claim.verdict = nullptr;
    key.claim.purpose = Purpose::kLook;
    key.claim.cost = 0;
    return wait_or_fail(key, ask_redis({&key.claim, 1}, &key.waiter));
}

/* Has Redis do what the method asks for, once it is known to answer. */
ngx_int_t command(KeyRequest &key) {
    key.step = key.kCommands;

    if (key.request->method == NGX_HTTP_POST) {
        if (key.remote.own.is_unlimited() || (key.unlimited && !key.remote.own.is_set())) {
            return send_unlimited(key);
        }

        key.claim.limit = key.limit;
        return wait_or_fail(key, charge_redis(&key.claim, key.cost, &key.waiter));
    }

    const KeyCommand command = key.request->method == NGX_HTTP_DELETE ? KeyCommand::kForget
                               : key.own == kLimitUnset               ? KeyCommand::kUnsetLimit
                                                                      : KeyCommand::kSetLimit;
    return wait_or_fail(key, send_key_command(&key.claim, command, &key.rate, 0, &key.waiter));
}

ngx_int_t end_look(KeyRequest &key) {
    if (key.waiter.told == Told::kFailed) { return wait_or_fail(key, false); }

    if (key.step == key.kLooks && (key.request->method & kWrites) != 0) { return command(key); }

    key.verdict = key.remote.verdict;
    key.own = key.remote.own.limit;
    key.unlimited = key.unlimited && key.own == kLimitUnset;
    return send_key(key);
}

ngx_int_t end_command(KeyRequest &key) {
    if (key.waiter.told != Told::kAdmitted) {
        return send_error(key.request, NGX_HTTP_BAD_GATEWAY, "redis did not do it, see the log");
    }

    if (key.request->method == NGX_HTTP_DELETE) {
        forget_here(key);
    } else if (key.request->method == NGX_HTTP_POST) {
        charge_here(key);
    } else {
        key.zone->memory.aside.redis_limits->set(key.claim.key_hash(), {key.own, {}});
    }

    /* This node knows the key from before the command.  Others find out when
     * they ask Redis, within a second. */
    RemoteZone &zone = key.zone->remote;
    zone.refusals->forget(key.claim);

    if (zone.leases != nullptr && key.request->method != NGX_HTTP_POST) {
        zone.leases->forget(key.claim, ngx_current_msec);
    }

    key.step = key.kLooksAgain;
    return look(key);
}

/* Goes on with a request, which must not be touched once it is finalized. */
void go_on(KeyRequest &key) {
    ngx_http_request_t *r = key.request;
    ngx_connection_t *c = r->connection;

    ngx_http_set_log_request(c->log, r);

    const ngx_int_t rc = key.step == key.kCommands ? end_command(key) : end_look(key);

    if (rc != NGX_AGAIN) { ngx_http_finalize_request(r, rc); }

    ngx_http_run_posted_requests(c);
}

ngx_int_t handle_in_redis(KeyRequest &key) {
    ngx_http_cleanup_t *cln = ngx_http_cleanup_add(key.request, 0);
    if (cln == nullptr) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    const auto leave = [](void *data) { leave_ask(&static_cast<KeyRequest *>(data)->waiter); };

    key.remote.zone = &key.zone->remote;
    key.remote.key = key.key;
    key.claim.remote = &key.remote;
    init_event<go_on>(key.waiter.event, key);

    const ngx_int_t rc = look(key);
    return rc == NGX_AGAIN ? wait(key, cln, leave) : rc;
}

} // namespace

void write_key(Json &json, const ZoneConf &zone, std::string_view key) {
    u_char buf[NGX_INET6_ADDRSTRLEN];
    const auto text = text_of_key(zone, key, buf);

    json.field("key", text);
    json.uri_field("key_uri", text);
}

ngx_int_t handle_key(ngx_http_request_t *r, ZoneConf &zone) {
    auto *created = create<KeyRequest>(r->pool);
    if (created == nullptr) { return NGX_HTTP_INTERNAL_SERVER_ERROR; }

    auto &key = *created;
    key.request = r;
    key.zone = &zone;

    if (!read_arg(r, "key", &key.key)) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, "\"key\" must be given, and not be empty");
    }

    const auto &conf = loc_conf(r);
    if (!read_key(zone, conf.client_ipv4, conf.client_ipv6, &key.key)) {
        return send_error(r, NGX_HTTP_BAD_REQUEST,
                          "\"key\" must be an address, as \"192.0.2.7\" or \"2001:db8::1\"");
    }

    if (r->method == NGX_HTTP_PUT && !read_rate(key)) {
        return send_error(r, NGX_HTTP_BAD_REQUEST,
                          "\"rate\" must be as \"10r/s\", of 1 to %uL requests "
                          "in a window of %uL ms, or \"off\", or \"default\"",
                          zone.limit_max(), zone.policy.window_ms);
    }

    if (r->method == NGX_HTTP_POST && !read_cost(key)) {
        return send_error(r, NGX_HTTP_BAD_REQUEST,
                          "\"cost\" must be an integer from 1 to 2^53, or from -2^53 to -1");
    }

    init_claim(key);
    return zone.redis != nullptr ? handle_in_redis(key) : handle_local(key);
}

} // namespace limit_sliding
