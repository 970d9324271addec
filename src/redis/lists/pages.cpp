/* Copyright (C) the limit_sliding authors */

#include "redis/lists/pages.hpp"

#include <hiredis/hiredis.h>

#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/errands/sender.hpp"
#include "redis/protocol/key_slot.hpp"

namespace limit_sliding {

namespace {

constexpr std::string_view kNameEnd = "}:limit";

/* A page ends after this many calls of SCAN, bytes of names, or ms. */
constexpr size_t kScansPerPage = 100;
constexpr size_t kBytesPerPage = 1024 * 1024;
constexpr ngx_msec_t kPageMs = 250;

/* A page while it is made.  It has memory of its own, because the caller may leave the page
 * before its calls end.  The errand asks for names, and calls for their values follow its reply. */
struct OverrideScan : ScanPage, Errand, TextSink {
    RemoteZone *zone;
    ngx_event_t *done;
    ngx_pool_t *pool;
    std::string_view pattern;
    size_t most;
    size_t nknown;    /* overrides with values, or with calls for them */
    size_t nvalues;   /* calls for values under way */
    size_t nscans;    /* calls of SCAN */
    size_t scanned;   /* sum of COUNT of these calls */
    size_t bytes;     /* bytes of names */
    ngx_msec_t begun; /* time in ms at which the page began */
    bool left;
};

/* A call for a value.  `index` is no pointer, because the array of overrides may move. */
struct ValueCall : Call {
    OverrideScan *scan;
    size_t index;
};

Cluster *cluster_of(const OverrideScan &scan) { return scan.zone->redis->client.nodes.cluster; }

/* Sets the result, unless a failure has set it before. */
void fail_scan(OverrideScan &scan, ScanResult result) {
    if (scan.result == ScanResult::kWaits) { scan.result = result; }
}

/* Continues with the next master once this one has no more names. */
void next_node(OverrideScan &scan) {
    Cluster *cluster = cluster_of(scan);
    uint64_t after = scan.next.node + 1;
    Node *next = cluster != nullptr && after != 0 ? cluster->master_from(after) : nullptr;
    scan.has_next = next != nullptr;
    scan.next = {next != nullptr ? next->endpoint->id() : 0, 0};
}

bool is_full(const OverrideScan &scan) {
    return scan.overrides.size() >= scan.most || scan.nscans >= kScansPerPage
           || scan.bytes >= kBytesPerPage || ngx_current_msec - scan.begun >= kPageMs;
}

/* Continues or ends the page once its errand is idle, and the names have their values. */
void go_on(OverrideScan &scan) {
    if (scan.nvalues != 0) { return; }

    if (scan.left) {
        ngx_destroy_pool(scan.pool);
    } else if (scan.result != ScanResult::kWaits) {
        post_event(*scan.done);
    } else if (scan.has_next && !is_full(scan)) {
        scan.master = scan.next.node;
        send(scan);
    } else {
        scan.result = ScanResult::kDone;
        post_event(*scan.done);
    }
}

/* ---- values ---- */

/* Returns the name of an override in Redis. */
std::string_view name_of(const OverrideScan &scan, const ScannedOverride &found) {
    size_t before = scan.zone->prefix.len;
    return view(found.key.data - before, before + found.key.len + kNameEnd.size());
}

/* Reads an error about an override.  The key may have moved since SCAN returned it.  ASK means
 * that another node has it, and lists it as well; after MOVED, this node may have been without
 * the keys of the slot for a while, so the page fails. */
void read_error(OverrideScan &scan, Node &node, ScannedOverride &found, const Reply &reply) {
    Cluster *cluster = cluster_of(scan);
    std::string_view error = view(reply.text, reply.len);
    if (starts_with(error, "WRONGTYPE")) { return; }

    bool asking = false;
    auto slot = static_cast<ngx_int_t>(key_slot(name_of(scan, found)));
    if (cluster != nullptr && cluster->redirect(node, slot, reply, &asking) != nullptr) {
        found.is_gone = true;
        if (!asking) { fail_scan(scan, ScanResult::kAway); }

        return;
    }

    node.log->write(0, "%s", reply_text(&reply));
    fail_scan(scan, ScanResult::kRefused);
}

void read_value(OverrideScan &scan, Node &node, ScannedOverride &found, const Reply &reply) {
    if (reply.type == REDIS_REPLY_STRING) {
        found.text = join(scan.pool, view(reply.text, reply.len));
    } else if (reply.type == REDIS_REPLY_ERROR) {
        read_error(scan, node, found, reply);
    } else {
        found.is_gone = true;
    }
}

void read_ttl(OverrideScan &scan, Node &node, ScannedOverride &found, const Reply &reply) {
    constexpr int64_t kNoKey = -2;
    /* Redis stores the time of expiry in 64 bits, so that no TTL is longer */
    constexpr int64_t kMost = INT64_MAX - 1000;
    if (reply.type == REDIS_REPLY_INTEGER && reply.numbers[0] >= kNoKey
        && reply.numbers[0] <= kMost) {
        found.ttl_ms = reply.numbers[0];
        found.is_gone |= found.ttl_ms == kNoKey;
    } else {
        read_error(scan, node, found, reply);
    }
}

/* The handler of calls for values. */
template <auto read>
void value_told(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<ValueCall &>(to);
    OverrideScan &scan = *call.scan;
    if (reply == nullptr) {
        fail_scan(scan, ScanResult::kAway);
    } else if (!scan.left) {
        read(scan, node, scan.overrides[call.index], *reply);
    }

    ngx_free(&call);
    scan.nvalues--;
    go_on(scan);
}

/* Puts a command about the next override into the buffer.  A node of a cluster shows keys of slots
 * that move to it only after ASKING. */
template <auto read>
void put_value_call(OverrideScan &scan, Node &node, std::string_view command) {
    const Arg args[] = {command, name_of(scan, scan.overrides[scan.nknown])};
    const bool is_asked = cluster_of(scan) == nullptr || put_asking(node);
    auto *call = is_asked ? create_call<ValueCall>(value_told<read>) : nullptr;
    if (call == nullptr || !node.command(*call, args)) {
        ngx_free(call);
        fail_scan(scan, ScanResult::kAway);
        return;
    }

    call->scan = &scan;
    call->index = scan.nknown;
    scan.nvalues++;
}

/* Puts calls for the values of all names into the buffer of the node that has sent the names. */
void put_values(OverrideScan &scan, Node &node) {
    for (; scan.nknown < scan.overrides.size(); scan.nknown++) {
        put_value_call<read_value>(scan, node, "GET");
        put_value_call<read_ttl>(scan, node, "PTTL");
    }

    node.post_flush();
}

/* ---- names ---- */

/* Adds a name from SCAN. */
void add_name(OverrideScan &scan, std::string_view name) {
    size_t before = scan.zone->prefix.len;
    if (scan.left || name.size() < before + kNameEnd.size()) { return; }

    ngx_str_t copy = join(scan.pool, name);
    ScannedOverride *found = copy.data != nullptr ? scan.overrides.add(scan.pool) : nullptr;
    if (found == nullptr) {
        fail_scan(scan, ScanResult::kAway);
        return;
    }

    found->key = {name.size() - before - kNameEnd.size(), copy.data + before};
    scan.bytes += name.size();
}

/* Reads the cursor of a reply to SCAN.  Its cursor is of one server only. */
void read_cursor(OverrideScan &scan, Node &node, const Reply &reply) {
    const uint64_t id = node.endpoint->id();
    if (scan.next.node == 0) { scan.next.node = id; }

    std::string_view cursor = reply.string(0);
    ngx_int_t next = NGX_ERROR;
    if (reply.type == REDIS_REPLY_ARRAY) { next = ngx_atoi(bytes(cursor), cursor.size()); }

    scan.master = id;
    if (next == NGX_ERROR) {
        const char *reason
            = reply.type == REDIS_REPLY_ERROR ? reply_text(&reply) : "unexpected reply to SCAN";
        node.log->write(0, "%s", reason);
        fail_scan(scan, ScanResult::kRefused);
    } else if (scan.next.node != id) {
        fail_scan(scan, ScanResult::kMoved);
    } else if (next == 0) {
        next_node(scan);
    } else {
        scan.next.cursor = next;
    }
}

OverrideScan &scan_of(Errand &errand) { return static_cast<OverrideScan &>(errand); }

/* Puts a call of SCAN into the buffer. */
bool put_names(Node &node, ErrandCall &call) {
    OverrideScan &scan = scan_of(call.errands.front());
    const size_t found = scan.overrides.size();
    size_t count = scan_count(scan.most - found, scan.scanned, found);
    u_char cursor[NGX_INT64_LEN];
    u_char number[NGX_INT64_LEN];
    const Arg args[]
        = {"SCAN",  view(cursor, ngx_sprintf(cursor, "%uL", scan.next.cursor) - cursor),
           "MATCH", scan.pattern,
           "COUNT", view(number, ngx_sprintf(number, "%uz", count) - number)};

    call.texts = &scan;
    scan.nscans++;
    scan.scanned += count;
    return node.command(call, args);
}

/* ---- pages ---- */

constexpr ErrandKind kPage = {nullptr, put_names,
                              /* answered */
                              [](Node &node, ErrandCall &call, Reply &reply) {
                                  OverrideScan &scan = scan_of(take_errand(call));
                                  if (!scan.left) { read_cursor(scan, node, reply); }

                                  put_values(scan, node);
                                  go_on(scan);
                              },
                              /* failed */
                              [](Errand &errand, Failure) {
                                  fail_scan(scan_of(errand), ScanResult::kAway);
                                  go_on(scan_of(errand));
                              }};

/* Sets the pattern of the names of overrides.  Returns false if there is no memory. */
bool make_pattern(OverrideScan &scan) {
    std::string_view prefix = view(scan.zone->prefix);
    u_char *begin = alloc_bytes(scan.pool, 2 * prefix.size() + 1 + kNameEnd.size());
    if (begin == nullptr) { return false; }

    char *end = escape_glob(prefix, reinterpret_cast<char *>(begin));
    u_char *p = append(append(reinterpret_cast<u_char *>(end), "*"), kNameEnd);
    scan.pattern = view(begin, p - begin);
    return true;
}

/* Returns a new page, or nullptr if there is no memory. */
OverrideScan *create_scan(RemoteZone &zone) {
    ngx_pool_t *pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ngx_cycle->log);
    if (pool == nullptr) { return nullptr; }

    auto *scan = create<OverrideScan>(pool);
    if (scan != nullptr) {
        scan->pool = pool;
        scan->zone = &zone;
        scan->kind = &kPage;
        scan->redis = zone.redis;
        scan->slot = kMasterSlot;
        scan->add_text = [](TextSink &sink, std::string_view key) {
            add_name(static_cast<OverrideScan &>(sink), key);
        };
        if (make_pattern(*scan)) { return scan; }
    }

    ngx_destroy_pool(pool);
    return nullptr;
}

} // namespace

ScanPage *scan_overrides(RemoteZone &zone, const ScanPosition &from, size_t most,
                         ngx_event_t *done) {
    OverrideScan *scan = is_away(*zone.redis) ? nullptr : create_scan(zone);
    if (scan == nullptr) { return nullptr; }

    scan->next = from;
    scan->has_next = true;
    scan->most = most;
    scan->done = done;
    scan->begun = ngx_current_msec;
    scan->master = from.node;
    send(*scan);
    return scan;
}

void leave_scan(ScanPage *page) {
    auto &scan = *static_cast<OverrideScan *>(page);
    unpost_event(*scan.done);
    scan.left = true;
    if (scan.state != ErrandState::kInCall && scan.nvalues == 0) {
        withdraw(scan);
        ngx_destroy_pool(scan.pool);
    }
}

} // namespace limit_sliding
