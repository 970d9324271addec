/* Copyright (C) the limit_sliding authors */

/* Requests to the API, from their request line to the bytes of the response: each has one
 * response with the status that its method and path ask for, what it sends is JSON or text
 * that others can read, and what was ordered is what is listed. */

#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/table/zone.hpp"
#include "http/api/api.hpp"
#include "http/conf/configuration.hpp"
#include "http/json/api_response.hpp"
#include "http/keys/keys.hpp"
#include "http/overrides/file_load.hpp"
#include "input.hpp"
#include "json.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"
#include "redis/bans/ban_call.hpp"
#include "redis/decisions/client.hpp"
#include "redis/errands/server_memory.hpp"
#include "redis/shares/claim_units.hpp"
#include "zone.hpp"

using std::string;
using std::string_view;

namespace {

/* What a request was answered. */
struct Response {
    unsigned headers; /* how often one was sent */
    unsigned ends;    /* how often its handler ended */
    ngx_uint_t status;
    string type;
    string body;
};

Response response;
string header_named(ngx_http_request_t *r, string_view name);

} // namespace

/* ---- in place of NGINX's own, of what asks Redis, and of a page that is built ---- */

extern "C" {

ngx_int_t ngx_http_send_header(ngx_http_request_t *r) {
    r->header_only = r->method == NGX_HTTP_HEAD;
    response.headers++;
    response.status = r->headers_out.status;
    response.type = view(r->headers_out.content_type);
    CHECK(r->headers_out.content_type_len <= response.type.size());
    CHECK(header_named(r, "Cache-Control") == "no-store");
    return NGX_OK;
}

ngx_int_t ngx_http_output_filter(ngx_http_request_t *r, ngx_chain_t *chain) {
    CHECK(r->method != NGX_HTTP_HEAD && response.body.empty());
    for (; chain != nullptr; chain = chain->next) {
        response.body
            += view(chain->buf->pos, static_cast<size_t>(chain->buf->last - chain->buf->pos));
        CHECK((chain->buf->last_buf != 0) == (chain->next == nullptr));
    }

    CHECK(static_cast<off_t>(response.body.size()) == r->headers_out.content_length_n);
    return NGX_OK;
}

ngx_int_t ngx_http_discard_request_body(ngx_http_request_t *) { return NGX_OK; }
void ngx_http_request_empty_handler(ngx_http_request_t *) {}
void ngx_http_block_reading(ngx_http_request_t *) {}
void ngx_http_core_run_phases(ngx_http_request_t *) { abort(); }
ngx_int_t ngx_handle_read_event(ngx_event_t *, ngx_uint_t) { abort(); }
ngx_int_t ngx_handle_write_event(ngx_event_t *, size_t) { abort(); }
void ngx_http_test_reading(ngx_http_request_t *) {}
void ngx_http_run_posted_requests(ngx_connection_t *) {}

void ngx_http_finalize_request(ngx_http_request_t *r, ngx_int_t rc) {
    CHECK(rc == NGX_OK);
    r->main->count--;
    response.ends++;
}

ngx_http_cleanup_t *ngx_http_cleanup_add(ngx_http_request_t *r, size_t) {
    auto *cln = static_cast<ngx_http_cleanup_t *>(ngx_pcalloc(r->pool, sizeof(ngx_http_cleanup_t)));
    cln->next = r->cleanup;
    r->cleanup = cln;
    return cln;
}

} // extern "C"

namespace limit_sliding {

bool ask_redis(Span<Claim>, Waiter *) { abort(); }
bool charge_redis(Claim *, int64_t, Waiter *) { abort(); }
bool send_key_command(Claim &, KeyCommand, string_view, ngx_msec_t, Waiter *) { abort(); }
std::optional<WaitResult> take_units(Claim &, Waiter *) { abort(); }
void leave_ask(Waiter *) { abort(); }
const char *why_undecided(const RemoteZone &) { abort(); }
ngx_int_t send_overrides_of_redis(ngx_http_request_t *, ZoneConf &) { abort(); }
std::optional<ServerMemory> look_at_memory(Redis &) { abort(); }
void tell_lifted_ban(const RemoteZone &, uint64_t) { abort(); }

ngx_int_t send_dashboard(ngx_http_request_t *r) {
    Writer text(r->pool);
    text.append("page");
    return send_text(r, NGX_HTTP_OK, "text/html; charset=utf-8", text);
}

} // namespace limit_sliding

namespace {

string header_named(ngx_http_request_t *r, string_view name) {
    for (ngx_list_part_t *part = &r->headers_out.headers.part; part != nullptr; part = part->next) {
        auto *fields = static_cast<ngx_table_elt_t *>(part->elts);
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (view(fields[i].key) == name) { return string(view(fields[i].value)); }
        }
    }

    return {};
}

/* ---- zones ---- */

constexpr size_t kZoneBytes = 32 * 1024;
constexpr size_t kOwnMax = 8;

/* A zone of this node, with what its workers and the master make for it. */
class TestedZone {
public:
    TestedZone(const char *name, KeyKind keys, Algorithm algorithm) {
        static const uint8_t secret[kSecretBytes] = {1, 2, 3};
        conf.name = to_str(name);
        conf.keys = keys;
        conf.policy.algorithm = algorithm;
        conf.policy.window_ms = 60000;
        conf.limit = 10;
        conf.clients = {true, kIpv4Prefix, kIpv6Prefix};
        conf.size = kZoneBytes;
        conf.rate_text = ngx_string("10r/m");
        conf.rejected = {true, true, {}};
        if (keys == KeyKind::kTexts) { conf.rejected.penalty = {60000, 60000, 3600000, 3}; }

        memory_.reset(zone_memory(2 * kZoneBytes));
        memset(memory_.get(), 0, 2 * kZoneBytes);
        auto *memory = static_cast<u_char *>(memory_.get());
        auto &aside = conf.memory.aside;
        aside.init(memory, 2 * kZoneBytes, ZoneMemory::kBans, kOwnMax, secret);
        if (!conf.rejected.are_banned()) { aside.bans = nullptr; }

        conf.memory.table = Zone::init(memory + aside.bytes, 2 * kZoneBytes - aside.bytes,
                                       conf.policy, 0, secret);
        conf.worker.counters = aside.counters;
        conf.override_file.max = kOwnMax;
        conf.override_file.fd = memfd_create("limits", MFD_CLOEXEC);
        uint64_t unplaced;
        CHECK(load_overrides(ngx_cycle->log, conf, OverridesRepair::kAll, &unplaced));
    }

    ~TestedZone() {
        (void)close(conf.override_file.fd);
        if (conf.worker.writes != nullptr) { ngx_free(conf.worker.writes); }
    }

    ZoneConf conf = {};

private:
    struct Free {
        void operator()(void *memory) const { free(memory); }
    };

    std::unique_ptr<void, Free> memory_;
};

/* ---- requests ---- */

/* What the client of a request does that waits for an order. */
enum class Leaving { kWaits, kLeaves, kLeavesToPostAction };

const char *const kMethods[] = {"GET", "HEAD", "PUT", "DELETE", "POST", "OPTIONS", "GET", "PUT"};

/* A location with the API, and what is requested there. */
class Site {
public:
    Site(string_view location, bool writes)
        : text_("texts", KeyKind::kTexts, Algorithm::kCounter),
          address_("a/b", KeyKind::kAddresses, Algorithm::kTokenBucket), writes_(writes) {
        pool_ = ngx_create_pool(4096, ngx_cycle->log);
        for (TestedZone *zone : {&text_, &address_}) {
            (void)main_.zones.add(pool_, &zone->conf);
        }

        core_.name = to_str(location);
        core_.noname = 1;
        conf_.client_ipv4 = 32;
        conf_.client_ipv6 = 64;

        LocConf outer;
        outer.api_write = writes;
        ngx_http_conf_ctx_t ctx = {mains_, nullptr, locs_};
        ngx_conf_t cf = {};
        cf.ctx = &ctx;
        CHECK(merge_api(&cf, &outer, &conf_));
    }

    ~Site() { ngx_destroy_pool(pool_); }

    /* Sends a request, and checks the response. */
    void request(string_view method, string_view uri, Leaving client = Leaving::kWaits) {
        response = {};
        string line = string(method) + " " + string(uri) + " HTTP/1.1\r\n";
        std::vector<u_char> bytes(line.begin(), line.end());
        ngx_http_request_t r = {};
        if (!parse(r, bytes)) {
            ngx_destroy_pool(r.pool);
            return;
        }

        const string path(view(r.uri));
        const ngx_int_t rc = core_.handler(&r);
        r.count--;
        if (rc != NGX_DONE) { response.ends++; }

        const bool leaves = rc == NGX_DONE && client != Leaving::kWaits;
        if (leaves && client == Leaving::kLeavesToPostAction) {
            /* The redirect clears the contexts, and the cleanup runs only after it. */
            r.ctx[0] = nullptr;
            run_posted();
        }

        if (leaves) {
            for (auto *cln = r.cleanup; cln != nullptr; cln = cln->next) {
                cln->handler(cln->data);
            }
        }

        run_posted();
        if (leaves) {
            CHECK(response.headers == 0 && response.ends == 0);
        } else {
            CHECK(rc == NGX_OK || rc == NGX_DONE);
            CHECK(response.headers == 1 && response.ends == 1 && r.count == 0);
            check(r, path);
        }

        ngx_destroy_pool(r.pool);
    }

    /* The list is the same in pages of any size, and has each key that says so. */
    void check_lists() {
        for (const TestedZone *zone : {&text_, &address_}) {
            const string path
                = string(view(core_.name)) + "/zones/" + string(view(zone->conf.name));
            const std::vector<string> all = list(path + "/limits?n=1000");
            std::vector<string> by_page;
            string next;
            do {
                for (const string &key :
                     list(path + "/limits?n=1" + (next.empty() ? "" : "&after=" + next))) {
                    by_page.push_back(key);
                }

                next = fuzz::Json(response.body).member("next").text();
            } while (!next.empty() && by_page.size() <= all.size());

            CHECK(by_page == all && all.size() <= kOwnMax);
            for (const string &key : all) {
                request("GET", path + "/key?key=" + key);
                CHECK(response.status == NGX_HTTP_OK);
                CHECK(fuzz::Json(response.body).member("own_limit").raw() != "false");
                CHECK(fuzz::Json(response.body).member("key_uri").text() == key);
            }
        }
    }

private:
    /* Parses the request line as NGINX does; false: it is none, or of another place. */
    bool parse(ngx_http_request_t &r, std::vector<u_char> &line) {
        static ngx_http_log_ctx_t log_ctx;
        static ngx_log_t log = {NGX_LOG_DEBUG};
        log.data = &log_ctx;
        static ngx_connection_t connection;
        connection.log = &log;
        r.connection = &connection;
        r.main = &r;
        r.count = 1;
        r.pool = ngx_create_pool(1024, &log);
        r.main_conf = mains_;
        r.loc_conf = locs_;
        static void *contexts[1];
        contexts[0] = nullptr;
        r.ctx = contexts;
        CHECK(ngx_list_init(&r.headers_out.headers, r.pool, 4, sizeof(ngx_table_elt_t)) == NGX_OK);

        ngx_buf_t in = {};
        in.start = in.pos = line.data();
        in.end = in.last = line.data() + line.size();
        if (ngx_http_parse_request_line(&r, &in) != NGX_OK || r.http_version < 1000) {
            return false;
        }

        u_char *end = r.args_start != nullptr ? r.args_start - 1 : r.uri_end;
        r.uri = {static_cast<size_t>(end - r.uri_start), r.uri_start};
        if (r.complex_uri || r.quoted_uri || r.empty_path_in_uri) {
            r.uri.len += r.empty_path_in_uri;
            r.uri.data = alloc_bytes(r.pool, r.uri.len);
            if (ngx_http_parse_complex_uri(&r, 1) != NGX_OK) { return false; }
        }

        if (r.args_start != nullptr && r.uri_end > r.args_start) {
            r.args = {static_cast<size_t>(r.uri_end - r.args_start), r.args_start};
        }

        return starts_with(view(r.uri), view(core_.name));
    }

    static void run_posted() {
        while (!ngx_queue_empty(&ngx_posted_events)) {
            ngx_queue_t *q = ngx_queue_head(&ngx_posted_events);
            ngx_event_t *ev = ngx_queue_data(q, ngx_event_t, queue);
            ngx_delete_posted_event(ev);
            ev->handler(ev);
        }
    }

    /* The zone of a path of the form zones/NAME/WHAT; nullptr: there is none. */
    const ZoneConf *zone_of(string_view name) const {
        for (const TestedZone *zone : {&text_, &address_}) {
            if (view(zone->conf.name) == name) { return &zone->conf; }
        }

        return nullptr;
    }

    /* Returns the status that a method and a path ask for; 0: one of those that
     * arguments lead to. */
    ngx_uint_t status_of(ngx_uint_t method, string path) const {
        string name(view(core_.name));
        if (name.back() == '/') { name.pop_back(); }

        path = path.substr(name.size());
        if (!path.empty() && path[0] != '/') { return NGX_HTTP_NOT_FOUND; }

        path = path.empty() ? path : path.substr(1);
        const bool is_page = path.empty() || path == "metrics" || path == "dashboard";
        const size_t last = path.rfind('/');
        const string what = path.substr(last == string::npos ? path.size() : last);
        const bool is_zone = path.rfind("zones/", 0) == 0 && last > 6 && last != string::npos
                             && (what == "/key" || what == "/limits");
        if (!is_page && !is_zone) { return NGX_HTTP_NOT_FOUND; }

        const bool reads = method == NGX_HTTP_GET || method == NGX_HTTP_HEAD;
        const bool may_write
            = what == "/key"
              && (method == NGX_HTTP_PUT || method == NGX_HTTP_POST || method == NGX_HTTP_DELETE);
        if (!reads && !may_write) { return NGX_HTTP_NOT_ALLOWED; }

        if (!reads && !writes_) { return NGX_HTTP_FORBIDDEN; }

        if (is_page) { return NGX_HTTP_OK; }

        return zone_of(path.substr(6, last - 6)) == nullptr ? NGX_HTTP_NOT_FOUND : 0;
    }

    void check(ngx_http_request_t &r, const string &path) const {
        const ngx_uint_t expected = status_of(r.method, path);
        const ngx_uint_t status = response.status;
        CHECK(expected == status
              || (expected == 0
                  && (status == NGX_HTTP_OK || status == NGX_HTTP_BAD_REQUEST
                      || status == NGX_HTTP_CONFLICT || status == NGX_HTTP_INSUFFICIENT_STORAGE)));
        CHECK((status == NGX_HTTP_NOT_ALLOWED) == !header_named(&r, "Allow").empty());
        if (r.method == NGX_HTTP_HEAD) { return; }

        if (response.type == "application/json") {
            const fuzz::Json json(response.body);
            CHECK(json.is_valid());
            CHECK(status == NGX_HTTP_OK
                  || (json.member("status").raw() == std::to_string(status)
                      && !json.member("error").text().empty()));
        } else {
            CHECK(status == NGX_HTTP_OK && !response.body.empty());
        }
    }

    std::vector<string> list(const string &uri) {
        request("GET", uri);
        CHECK(response.status == NGX_HTTP_OK);
        std::vector<string> keys;
        for (const fuzz::Json &limit : fuzz::Json(response.body).member("limits").elements()) {
            keys.emplace_back(limit.member("key_uri").text());
        }

        return keys;
    }

    TestedZone text_;
    TestedZone address_;
    ngx_pool_t *pool_;
    MainConf main_ = {};
    LocConf conf_;
    ngx_http_core_loc_conf_t core_ = {};
    void *mains_[2] = {&main_, nullptr};
    void *locs_[2] = {&conf_, &core_};
    bool writes_;
};

} // namespace

/* Lines of requests: a letter for the method, and the path after the location's name, or
 * all of it. */
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const locations[] = {"/limits", "/limits/", "/"};
    ngx_queue_init(&ngx_posted_events);
    ngx_http_limit_sliding_module.ctx_index = 0;
    ngx_http_core_module.ctx_index = 1;
    ngx_cached_time->sec = 1000000;
    ngx_current_msec = 5000;

    fuzz::Input input(data, size);
    const uint8_t kind = input.byte();
    const string_view location = locations[kind % 3];
    const string_view rest = input.rest();
    {
        Site site(location, (kind & 4) == 0);
        for (size_t at = 0, n = 0; at < rest.size() && n < 30; n++) {
            const size_t end = std::min(rest.find('\n', at), rest.size());
            const auto method = static_cast<uint8_t>(rest[at]);
            const string_view path = rest.substr(at + (end != at), end - at - (end != at));
            string uri(path);
            if ((method & 16) == 0) { uri.insert(0, location); }

            ngx_current_msec += (method & 64) != 0 ? 700 : 0;
            ngx_cached_time->sec += (method & 32) != 0 ? 1 : 0;
            const auto client = (method & 8) == 0     ? Leaving::kWaits
                                : (method & 128) == 0 ? Leaving::kLeaves
                                                      : Leaving::kLeavesToPostAction;
            site.request(kMethods[method % 8], uri, client);
            at = end + 1;
        }

        site.check_lists();
    }

    return 0;
}
