/* Copyright (C) the limit_sliding authors */

#include "redis/limit_list.hpp"

#include <hiredis/hiredis.h>

#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/ask.hpp"
#include "redis/client.hpp"
#include "redis/logic/key_slot.hpp"

namespace limit_sliding {

namespace {

constexpr std::string_view kNameEnd = "}:limit";

/* A page ends with what it has after so many calls of SCAN, bytes of names and
 * milliseconds. */
constexpr size_t kScansPerPage = 100;
constexpr size_t kBytesPerPage = 1024 * 1024;
constexpr ngx_msec_t kPageMs = 250;

/* A page while it is made.  It may be left before its calls are answered: so it
 * has memory of its own. */
struct LimitList : LimitPage, Errand, KeySink {
    RemoteZone *zone;
    ngx_event_t *done;
    ngx_pool_t *pool;
    std::string_view pattern;
    size_t most;
    size_t nknown;     /* limits that were asked for their values */
    size_t nscans;     /* calls of SCAN */
    size_t scanned;    /* keys that they were to look at */
    size_t bytes;      /* of names */
    size_t ncalls;     /* under way */
    ngx_msec_t since;  /* when it began */
    ngx_uint_t hops;   /* nodes that could not be connected to */
    ngx_event_t timer; /* is set while it waits for a node */
    bool left;
};

/* A call for a page.  The limits may move, and so have numbers. */
struct ListCall : Call {
    LimitList *list;
    size_t limit;
};

Nodes &nodes_of(const LimitList &list) { return list.zone->redis->client.nodes; }

void free_list(LimitList &list) { ngx_destroy_pool(list.pool); }

/* The result of failures is that of the first one. */
void fail_list(LimitList &list, Listed result) {
    if (list.result == Listed::kWaits) { list.result = result; }
}

void end_list(LimitList &list) { ngx_post_event(list.done, &ngx_posted_events); }

void wait_at(LimitList &list, Node &node) {
    if (!list.timer.timer_set) { ngx_add_timer(&list.timer, node.settings->timeout); }

    node.send_errand(list);
}

void stop_waiting(LimitList &list) {
    if (list.timer.timer_set) { ngx_del_timer(&list.timer); }
}

void waited_too_long(LimitList &list) {
    ErrandList::remove(list);
    fail_list(list, Listed::kAway);
    end_list(list);
}

/* Returns where the list goes on, which has been asked to look at `node`;
 * nullptr: its cursor means nothing to anyone any more. */
Node *find_place(LimitList &list, Node &node) {
    Cluster *cluster = nodes_of(list).cluster;
    ScanPlace &place = list.next;
    Node *found = cluster != nullptr ? cluster->master_from(place.node) : &node;
    uint64_t id = found != nullptr ? found->endpoint->id() : 0;
    if (place.node == 0) { place.node = id; }

    return place.node == id ? found : nullptr;
}

/* Goes to the node after the one that has no more, if there is one. */
void next_node(LimitList &list) {
    Cluster *cluster = nodes_of(list).cluster;
    uint64_t after = list.next.node + 1;
    Node *next = cluster != nullptr && after != 0 ? cluster->master_from(after) : nullptr;
    list.has_next = next != nullptr;
    list.next = {next != nullptr ? next->endpoint->id() : 0, 0};
}

bool is_full(const LimitList &list) {
    return list.limits.size() >= list.most || list.nscans >= kScansPerPage
           || list.bytes >= kBytesPerPage || ngx_current_msec - list.since >= kPageMs;
}

/* Goes on once all calls are answered. */
void go_on(LimitList &list, Node &node) {
    if (list.left) {
        free_list(list);
    } else if (list.result != Listed::kWaits) {
        end_list(list);
    } else if (list.nknown < list.limits.size() || (list.has_next && !is_full(list))) {
        wait_at(list, node);
    } else {
        list.result = Listed::kDone;
        end_list(list);
    }
}

/* ---- values ---- */

/* Returns the name in Redis of a limit that is listed. */
std::string_view name_of(const LimitList &list, const ListedLimit &limit) {
    size_t before = list.zone->prefix.len;
    return view(limit.key.data - before, before + limit.key.len + kNameEnd.size());
}

/* Reads an error about a limit.  A name that SCAN has told may be somewhere else
 * by now: ASK says that another node has it, which tells it as well, and MOVED
 * that this node may not have had it for long. */
void read_error(LimitList &list, Node &node, ListedLimit &limit, const Reply &reply) {
    Cluster *cluster = nodes_of(list).cluster;
    std::string_view error = view(reply.text, reply.len);
    if (starts_with(error, "WRONGTYPE")) { return; }

    bool asking = false;
    auto slot = static_cast<ngx_int_t>(key_slot(name_of(list, limit)));
    if (cluster != nullptr && cluster->redirect(node, slot, reply, &asking) != nullptr) {
        limit.is_gone = true;
        if (!asking) { fail_list(list, Listed::kAway); }

        return;
    }

    node.log->write(0, "%s", reply_text(&reply));
    fail_list(list, Listed::kRefused);
}

/* Ends a call.  Returns false if its list goes without the reply. */
bool take_call(ListCall &call, const Reply *reply) {
    LimitList &list = *call.list;
    ngx_free(&call);
    list.ncalls--;
    if (reply == nullptr) { fail_list(list, Listed::kAway); }

    return reply != nullptr && !list.left;
}

void value_told(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<ListCall &>(to);
    LimitList &list = *call.list;
    ListedLimit &limit = list.limits[call.limit];
    if (take_call(call, reply)) {
        if (reply->type == REDIS_REPLY_STRING) {
            limit.limit = join(list.pool, view(reply->text, reply->len));
        } else if (reply->type == REDIS_REPLY_ERROR) {
            read_error(list, node, limit, *reply);
        } else {
            limit.is_gone = true;
        }
    }

    if (list.ncalls == 0) { go_on(list, node); }
}

void ttl_told(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<ListCall &>(to);
    LimitList &list = *call.list;
    ListedLimit &limit = list.limits[call.limit];
    if (take_call(call, reply)) {
        if (reply->type == REDIS_REPLY_INTEGER) {
            constexpr int64_t kNoKey = -2;
            limit.ttl_ms = reply->numbers[0];
            limit.is_gone |= limit.ttl_ms == kNoKey;
        } else {
            read_error(list, node, limit, *reply);
        }
    }

    if (list.ncalls == 0) { go_on(list, node); }
}

/* Puts a call about a limit, whose name is the second word of the command.
 * Returns false if there is no memory. */
bool put_value_call(LimitList &list, Node &node, size_t i, ReplyHandler handler,
                    std::string_view command) {
    auto *call = create_call<ListCall>(handler);
    if (call == nullptr) { return false; }

    call->list = &list;
    call->limit = i;
    std::string_view args[] = {command, name_of(list, list.limits[i])};
    if ((nodes_of(list).is_cluster() && !put_asking(node)) || !node.command(*call, args)) {
        ngx_free(call);
        return false;
    }

    list.ncalls++;
    return true;
}

/* In a cluster the node may have keys of slots that are about to be its own,
 * which it shows only after ASKING. */
bool ask_values(LimitList &list, Node &node) {
    while (list.nknown < list.limits.size()) {
        size_t i = list.nknown++;
        if (!put_value_call(list, node, i, value_told, "GET")
            || !put_value_call(list, node, i, ttl_told, "PTTL")) {
            return false;
        }
    }
    return true;
}

/* ---- names ---- */

/* Takes a name that SCAN has told. */
void add_name(LimitList &list, std::string_view name) {
    size_t before = list.zone->prefix.len;
    if (list.left || name.size() < before + kNameEnd.size()) { return; }

    ngx_str_t copy = join(list.pool, name);
    ListedLimit *limit = copy.data != nullptr ? list.limits.add(list.pool) : nullptr;
    if (limit == nullptr) {
        fail_list(list, Listed::kAway);
        return;
    }

    limit->key = {name.size() - before - kNameEnd.size(), copy.data + before};
    list.bytes += name.size();
}

void names_told(Node &node, Call &to, Reply *reply) {
    auto &call = static_cast<ListCall &>(to);
    LimitList &list = *call.list;
    if (take_call(call, reply)) {
        std::string_view cursor = reply->strings[0];
        ngx_int_t next = NGX_ERROR;
        if (reply->type == REDIS_REPLY_ARRAY) { next = ngx_atoi(bytes(cursor), cursor.size()); }

        if (next == NGX_ERROR) {
            const char *reason
                = reply->type == REDIS_REPLY_ERROR ? reply_text(reply) : "unexpected reply to SCAN";
            node.log->write(0, "%s", reason);
            fail_list(list, Listed::kRefused);
        } else if (next == 0) {
            next_node(list);
        } else {
            list.next.cursor = next;
        }
    }

    go_on(list, node);
}

bool ask_names(LimitList &list, Node &node) {
    auto *call = create_call<ListCall>(names_told);
    if (call == nullptr) { return false; }

    size_t found = list.limits.size();
    size_t count = scan_count(list.most - found, list.scanned, found);
    u_char cursor[NGX_INT64_LEN];
    u_char number[NGX_INT64_LEN];
    std::string_view args[]
        = {"SCAN",  view(cursor, ngx_sprintf(cursor, "%uL", list.next.cursor) - cursor),
           "MATCH", list.pattern,
           "COUNT", view(number, ngx_sprintf(number, "%uz", count) - number)};

    call->list = &list;
    call->keys = &list;
    if (!node.command(*call, args)) {
        ngx_free(call);
        return false;
    }

    list.ncalls++;
    list.nscans++;
    list.scanned += count;
    return true;
}

/* ---- pages ---- */

/* A node is ready: values are at that which has told the names. */
void run(LimitList &list, Node &node) {
    stop_waiting(list);
    bool asked = true;
    if (list.nknown < list.limits.size()) {
        asked = ask_values(list, node);
    } else if (Node *place = find_place(list, node); place == &node) {
        asked = ask_names(list, node);
    } else if (place != nullptr) {
        wait_at(list, *place);
        return;
    } else {
        fail_list(list, Listed::kMoved);
    }

    if (!asked) { fail_list(list, Listed::kAway); }

    if (list.ncalls == 0) { go_on(list, node); }
}

/* While it is not known which nodes there are, another one may tell. */
void try_another(LimitList &list, Node &failed) {
    Node *other = nodes_of(list).route(0);
    if (!nodes_of(list).are_known() && other != &failed && list.hops++ < kHopsMax) {
        other->send_errand(list);
        return;
    }

    stop_waiting(list);
    fail_list(list, Listed::kAway);
    end_list(list);
}

/* Makes the pattern of the names that are looked for. */
bool make_pattern(LimitList &list) {
    std::string_view prefix = view(list.zone->prefix);
    u_char *begin = alloc_bytes(list.pool, 2 * prefix.size() + 1 + kNameEnd.size());
    if (begin == nullptr) { return false; }

    char *end = escape_glob(prefix, reinterpret_cast<char *>(begin));
    u_char *p = append(append(reinterpret_cast<u_char *>(end), "*"), kNameEnd);
    list.pattern = view(begin, p - begin);
    return true;
}

/* Returns a page that is still to be asked for; nullptr: there is no memory. */
LimitList *create_list(RemoteZone &zone) {
    ngx_pool_t *pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ngx_cycle->log);
    if (pool == nullptr) { return nullptr; }

    auto *list = create<LimitList>(pool);
    if (list != nullptr) {
        list->pool = pool;
        list->zone = &zone;
        list->run = [](Errand &errand, Node &node) { run(static_cast<LimitList &>(errand), node); };
        list->fail = [](Errand &errand, Node &node) {
            try_another(static_cast<LimitList &>(errand), node);
        };
        list->add_key = [](KeySink &sink, std::string_view key) {
            add_name(static_cast<LimitList &>(sink), key);
        };
        init_event<waited_too_long>(list->timer, *list);

        if (make_pattern(*list)) { return list; }
    }

    ngx_destroy_pool(pool);
    return nullptr;
}

} // namespace

LimitPage *list_limits(RemoteZone &zone, const ScanPlace &from, size_t most, ngx_event_t *done) {
    LimitList *list = can_ask(*zone.redis) ? create_list(zone) : nullptr;
    if (list == nullptr) { return nullptr; }

    list->next = from;
    list->has_next = true;
    list->most = most;
    list->done = done;
    list->since = ngx_current_msec;
    wait_at(*list, *nodes_of(*list).route(0));
    return list;
}

void leave_list(LimitPage *page) {
    auto &list = *static_cast<LimitList *>(page);
    if (list.timer.timer_set) {
        ErrandList::remove(list);
        stop_waiting(list);
    }

    if (list.done->posted) { ngx_delete_posted_event(list.done); }

    list.left = true;
    if (list.ncalls == 0) { free_list(list); }
}

} // namespace limit_sliding
