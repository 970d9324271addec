/* Copyright (C) the limit_sliding authors */

#include "redis/background/override_scan.hpp"

#include <hiredis/hiredis.h>

#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/calls/ask.hpp"
#include "redis/calls/client.hpp"
#include "redis/protocol/key_slot.hpp"

namespace limit_sliding {

namespace {

constexpr std::string_view kNameEnd = "}:limit";

/* A page ends after this many calls of SCAN, bytes of names, or ms. */
constexpr size_t kScansPerPage = 100;
constexpr size_t kBytesPerPage = 1024 * 1024;
constexpr ngx_msec_t kPageMs = 250;

/* A page while it is made.  It has memory of its own, because the caller may leave the page
 * before its calls end. */
struct LimitScan : ScanPage, Errand, TextSink {
    RemoteZone *zone;
    ngx_event_t *done;
    ngx_pool_t *pool;
    std::string_view pattern;
    size_t most;
    size_t nknown;     /* overrides with calls for their values */
    size_t nscans;     /* calls of SCAN */
    size_t scanned;    /* sum of COUNT of these calls */
    size_t bytes;      /* bytes of names */
    size_t ncalls;     /* calls under way */
    ngx_msec_t since;  /* time in ms at which the page began */
    ngx_uint_t hops;   /* nodes that could not be connected to */
    ngx_event_t timer; /* set while the page waits for a node */
    bool left;
};

/* A call for a page.  `limit` is an index, because the array of overrides may move. */
struct ScanCall : Call {
    LimitScan *scan;
    size_t limit;
};

Nodes &nodes_of(const LimitScan &scan) { return scan.zone->redis->client.nodes; }

void free_scan(LimitScan &scan) { ngx_destroy_pool(scan.pool); }

/* Sets the result, unless a failure has set it before. */
void fail_scan(LimitScan &scan, ScanResult result) {
    if (scan.result == ScanResult::kWaits) { scan.result = result; }
}

void end_scan(LimitScan &scan) { post_event(*scan.done); }

void wait_at(LimitScan &scan, Node &node) {
    if (!scan.timer.timer_set) { ngx_add_timer(&scan.timer, node.settings->timeout); }

    node.send_errand(scan);
}

void stop_waiting(LimitScan &scan) {
    if (scan.timer.timer_set) { ngx_del_timer(&scan.timer); }
}

void waited_too_long(LimitScan &scan) {
    ErrandList::remove(scan);
    fail_scan(scan, ScanResult::kAway);
    end_scan(scan);
}

/* Returns the node at which the list continues, from `node`; nullptr: the server of the cursor is
 * no master any more. */
Node *find_place(LimitScan &scan, Node &node) {
    Cluster *cluster = nodes_of(scan).cluster;
    ScanCursor &place = scan.next;
    Node *found = cluster != nullptr ? cluster->master_from(place.node) : &node;
    uint64_t id = found != nullptr ? found->endpoint->id() : 0;
    if (place.node == 0) { place.node = id; }

    return place.node == id ? found : nullptr;
}

/* Continues with the next master once this one has no more names. */
void next_node(LimitScan &scan) {
    Cluster *cluster = nodes_of(scan).cluster;
    uint64_t after = scan.next.node + 1;
    Node *next = cluster != nullptr && after != 0 ? cluster->master_from(after) : nullptr;
    scan.has_next = next != nullptr;
    scan.next = {next != nullptr ? next->endpoint->id() : 0, 0};
}

bool is_full(const LimitScan &scan) {
    return scan.limits.size() >= scan.most || scan.nscans >= kScansPerPage
           || scan.bytes >= kBytesPerPage || ngx_current_msec - scan.since >= kPageMs;
}

/* Continues or ends the page once all calls have ended. */
void go_on(LimitScan &scan, Node &node) {
    if (scan.left) {
        free_scan(scan);
    } else if (scan.result != ScanResult::kWaits) {
        end_scan(scan);
    } else if (scan.nknown < scan.limits.size() || (scan.has_next && !is_full(scan))) {
        wait_at(scan, node);
    } else {
        scan.result = ScanResult::kDone;
        end_scan(scan);
    }
}

/* ---- values ---- */

/* Returns the name of an override in Redis. */
std::string_view name_of(const LimitScan &scan, const ScannedLimit &limit) {
    size_t before = scan.zone->prefix.len;
    return view(limit.key.data - before, before + limit.key.len + kNameEnd.size());
}

/* Reads an error about an override.  The key may have moved since SCAN returned it.  ASK means
 * that another node has it, and lists it as well; after MOVED, this node may have been without
 * the keys of the slot for a while, so the page fails. */
void read_error(LimitScan &scan, Node &node, ScannedLimit &limit, const Reply &reply) {
    Cluster *cluster = nodes_of(scan).cluster;
    std::string_view error = view(reply.text, reply.len);
    if (starts_with(error, "WRONGTYPE")) { return; }

    bool asking = false;
    auto slot = static_cast<ngx_int_t>(key_slot(name_of(scan, limit)));
    if (cluster != nullptr && cluster->redirect(node, slot, reply, &asking) != nullptr) {
        limit.is_gone = true;
        if (!asking) { fail_scan(scan, ScanResult::kAway); }

        return;
    }

    node.log->write(0, "%s", reply_text(&reply));
    fail_scan(scan, ScanResult::kRefused);
}

/* Ends a call.  Returns false if there is no reply, or the page was left. */
bool take_call(ScanCall &call, const Reply *reply) {
    LimitScan &scan = *call.scan;
    ngx_free(&call);
    scan.ncalls--;
    if (reply == nullptr) { fail_scan(scan, ScanResult::kAway); }

    return reply != nullptr && !scan.left;
}

void value_told(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<ScanCall &>(to);
    LimitScan &scan = *call.scan;
    ScannedLimit &limit = scan.limits[call.limit];
    if (take_call(call, reply)) {
        if (reply->type == REDIS_REPLY_STRING) {
            limit.limit = join(scan.pool, view(reply->text, reply->len));
        } else if (reply->type == REDIS_REPLY_ERROR) {
            read_error(scan, node, limit, *reply);
        } else {
            limit.is_gone = true;
        }
    }

    if (scan.ncalls == 0) { go_on(scan, node); }
}

void ttl_told(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<ScanCall &>(to);
    LimitScan &scan = *call.scan;
    ScannedLimit &limit = scan.limits[call.limit];
    if (take_call(call, reply)) {
        constexpr int64_t kNoKey = -2;
        /* Redis stores the time of expiry in 64 bits, so that no TTL is longer */
        constexpr int64_t kMost = INT64_MAX - 1000;
        if (reply->type == REDIS_REPLY_INTEGER && reply->numbers[0] >= kNoKey
            && reply->numbers[0] <= kMost) {
            limit.ttl_ms = reply->numbers[0];
            limit.is_gone |= limit.ttl_ms == kNoKey;
        } else {
            read_error(scan, node, limit, *reply);
        }
    }

    if (scan.ncalls == 0) { go_on(scan, node); }
}

/* Puts a command about override i into the buffer.  Returns false if there is no memory. */
bool put_value_call(LimitScan &scan, Node &node, size_t i, ReplyHandler handler,
                    std::string_view command) {
    auto *call = create_call<ScanCall>(handler);
    if (call == nullptr) { return false; }

    call->scan = &scan;
    call->limit = i;
    const Arg args[] = {command, name_of(scan, scan.limits[i])};
    if ((nodes_of(scan).is_cluster() && !put_asking(node)) || !node.command(*call, args)) {
        ngx_free(call);
        return false;
    }

    scan.ncalls++;
    return true;
}

/* Asks for values.  A node of a cluster shows keys of slots that move to it only after ASKING. */
bool ask_values(LimitScan &scan, Node &node) {
    while (scan.nknown < scan.limits.size()) {
        size_t i = scan.nknown++;
        if (!put_value_call(scan, node, i, value_told, "GET")
            || !put_value_call(scan, node, i, ttl_told, "PTTL")) {
            return false;
        }
    }
    return true;
}

/* ---- names ---- */

/* Adds a name from SCAN. */
void add_name(LimitScan &scan, std::string_view name) {
    size_t before = scan.zone->prefix.len;
    if (scan.left || name.size() < before + kNameEnd.size()) { return; }

    ngx_str_t copy = join(scan.pool, name);
    ScannedLimit *limit = copy.data != nullptr ? scan.limits.add(scan.pool) : nullptr;
    if (limit == nullptr) {
        fail_scan(scan, ScanResult::kAway);
        return;
    }

    limit->key = {name.size() - before - kNameEnd.size(), copy.data + before};
    scan.bytes += name.size();
}

void names_told(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<ScanCall &>(to);
    LimitScan &scan = *call.scan;
    if (take_call(call, reply)) {
        std::string_view cursor = reply->strings[0];
        ngx_int_t next = NGX_ERROR;
        if (reply->type == REDIS_REPLY_ARRAY) { next = ngx_atoi(bytes(cursor), cursor.size()); }

        if (next == NGX_ERROR) {
            const char *reason
                = reply->type == REDIS_REPLY_ERROR ? reply_text(reply) : "unexpected reply to SCAN";
            node.log->write(0, "%s", reason);
            fail_scan(scan, ScanResult::kRefused);
        } else if (next == 0) {
            next_node(scan);
        } else {
            scan.next.cursor = next;
        }
    }

    go_on(scan, node);
}

bool ask_names(LimitScan &scan, Node &node) {
    auto *call = create_call<ScanCall>(names_told);
    if (call == nullptr) { return false; }

    size_t found = scan.limits.size();
    size_t count = scan_count(scan.most - found, scan.scanned, found);
    u_char cursor[NGX_INT64_LEN];
    u_char number[NGX_INT64_LEN];
    const Arg args[]
        = {"SCAN",  view(cursor, ngx_sprintf(cursor, "%uL", scan.next.cursor) - cursor),
           "MATCH", scan.pattern,
           "COUNT", view(number, ngx_sprintf(number, "%uz", count) - number)};

    call->scan = &scan;
    call->texts = &scan;
    if (!node.command(*call, args)) {
        ngx_free(call);
        return false;
    }

    scan.ncalls++;
    scan.nscans++;
    scan.scanned += count;
    return true;
}

/* ---- pages ---- */

/* Sends calls at a node that is ready; values are at the node that has returned the names. */
void run(LimitScan &scan, Node &node) {
    stop_waiting(scan);
    bool asked = true;
    if (scan.nknown < scan.limits.size()) {
        asked = ask_values(scan, node);
    } else if (Node *place = find_place(scan, node); place == &node) {
        asked = ask_names(scan, node);
    } else if (place != nullptr) {
        wait_at(scan, *place);
        return;
    } else {
        fail_scan(scan, ScanResult::kMoved);
    }

    if (!asked) { fail_scan(scan, ScanResult::kAway); }

    if (scan.ncalls == 0) { go_on(scan, node); }
}

/* Handles a node that cannot be connected to: while nodes are unknown, another may know them. */
void try_another(LimitScan &scan, Node &failed) {
    Node *other = nodes_of(scan).route(0);
    if (!nodes_of(scan).are_known() && other != &failed && scan.hops++ < kHopsMax) {
        other->send_errand(scan);
        return;
    }

    stop_waiting(scan);
    fail_scan(scan, ScanResult::kAway);
    end_scan(scan);
}

/* Sets the pattern of the names of overrides.  Returns false if there is no memory. */
bool make_pattern(LimitScan &scan) {
    std::string_view prefix = view(scan.zone->prefix);
    u_char *begin = alloc_bytes(scan.pool, 2 * prefix.size() + 1 + kNameEnd.size());
    if (begin == nullptr) { return false; }

    char *end = escape_glob(prefix, reinterpret_cast<char *>(begin));
    u_char *p = append(append(reinterpret_cast<u_char *>(end), "*"), kNameEnd);
    scan.pattern = view(begin, p - begin);
    return true;
}

/* Returns a new page, or nullptr if there is no memory. */
LimitScan *create_scan(RemoteZone &zone) {
    ngx_pool_t *pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ngx_cycle->log);
    if (pool == nullptr) { return nullptr; }

    auto *scan = create<LimitScan>(pool);
    if (scan != nullptr) {
        scan->pool = pool;
        scan->zone = &zone;
        scan->run = [](Errand &errand, Node &node) { run(static_cast<LimitScan &>(errand), node); };
        scan->fail = [](Errand &errand, Node &node) {
            try_another(static_cast<LimitScan &>(errand), node);
        };
        scan->add_text = [](TextSink &sink, std::string_view key) {
            add_name(static_cast<LimitScan &>(sink), key);
        };
        init_event<waited_too_long>(scan->timer, *scan);

        if (make_pattern(*scan)) { return scan; }
    }

    ngx_destroy_pool(pool);
    return nullptr;
}

} // namespace

ScanPage *scan_limits(RemoteZone &zone, const ScanCursor &from, size_t most, ngx_event_t *done) {
    LimitScan *scan = can_ask(*zone.redis) ? create_scan(zone) : nullptr;
    if (scan == nullptr) { return nullptr; }

    scan->next = from;
    scan->has_next = true;
    scan->most = most;
    scan->done = done;
    scan->since = ngx_current_msec;
    wait_at(*scan, *nodes_of(*scan).route(0));
    return scan;
}

void leave_scan(ScanPage *page) {
    auto &scan = *static_cast<LimitScan *>(page);
    if (scan.timer.timer_set) {
        ErrandList::remove(scan);
        stop_waiting(scan);
    }

    unpost_event(*scan.done);

    scan.left = true;
    if (scan.ncalls == 0) { free_scan(scan); }
}

} // namespace limit_sliding
