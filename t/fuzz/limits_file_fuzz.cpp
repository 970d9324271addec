/* Copyright (C) the limit_sliding authors */

/* The limits file of a zone as a whole: orders, compaction, reloads and tests of it, by
 * processes that die at any byte they write, while an operator edits it and the disk
 * fills up.  What was answered is kept, and the memory is what the file says. */

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csetjmp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/facts/overrides.hpp"
#include "core/table/zone.hpp"
#include "http/conf/configuration.hpp"
#include "http/conf/written_key.hpp"
#include "http/overrides/api_writes.hpp"
#include "http/overrides/file_compaction.hpp"
#include "http/overrides/file_list.hpp"
#include "http/overrides/file_load.hpp"
#include "http/overrides/limits_file.hpp"
#include "input.hpp"
#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "zone.hpp"

using std::string;
using std::string_view;

namespace {

constexpr uint64_t kNever = UINT64_MAX;
constexpr uint64_t kYear2105 = UINT32_MAX;

/* ---- a process: what it may still write, and its memory ---- */

jmp_buf end_of_process;
bool may_die;
uint64_t until_death; /* bytes, and calls that cut or flush the file */
uint64_t until_full;  /* bytes */
std::set<void *> heap;

void die() {
    may_die = false;
    longjmp(end_of_process, 1);
}

void step_to_death() {
    if (may_die && until_death-- == 0) { die(); }
}

void *remember(void *p) {
    if (p != nullptr) { heap.insert(p); }

    return p;
}

} // namespace

extern "C" {

ssize_t __real_pwrite(int fd, const void *bytes, size_t n, off_t at);
int __real_ftruncate(int fd, off_t size);
int __real_fdatasync(int fd);
void __real_free(void *p);
void *__real_ngx_alloc(size_t size, ngx_log_t *log);
void *__real_ngx_calloc(size_t size, ngx_log_t *log);
void *__real_calloc(size_t n, size_t size);

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at) {
    if (until_full == 0) {
        errno = ENOSPC;
        return -1;
    }

    n = std::min<uint64_t>(n, until_full);
    until_full -= n;
    if (may_die && until_death < n) {
        CHECK(__real_pwrite(fd, bytes, until_death, at) == static_cast<ssize_t>(until_death));
        die();
    }

    until_death -= may_die ? n : 0;
    return __real_pwrite(fd, bytes, n, at);
}

int __wrap_ftruncate(int fd, off_t size) {
    step_to_death();
    return __real_ftruncate(fd, size);
}

int __wrap_fdatasync(int) {
    step_to_death();
    if (until_full != 0) { return 0; }

    errno = ENOSPC;
    return -1;
}

void __wrap_free(void *p) {
    heap.erase(p);
    __real_free(p);
}

void *__wrap_ngx_alloc(size_t size, ngx_log_t *log) {
    return remember(__real_ngx_alloc(size, log));
}

void *__wrap_ngx_calloc(size_t size, ngx_log_t *log) {
    return remember(__real_ngx_calloc(size, log));
}

void *__wrap_calloc(size_t n, size_t size) { return remember(__real_calloc(n, size)); }

} // extern "C"

namespace {

/* Runs what a process does; false: it has died before the end. */
template <class Work>
bool lives_through(const Work &work) {
    if (setjmp(end_of_process) == 0) {
        work();
        may_die = false;
        return true;
    }

    for (void *p : heap) {
        __real_free(p);
    }

    heap.clear();
    ngx_queue_init(&ngx_posted_events);
    return false;
}

/* ---- a slow reading of the file ---- */

struct Limit {
    Override own;
    uint64_t until_s;

    bool operator==(const Limit &other) const {
        return own == other.own && until_s == other.until_s;
    }
};

using Limits = std::map<string, Limit>;

/* What a file says. */
struct Said {
    Limits limits;         /* by the last line of each key, of those that have not ended */
    std::set<string> keys; /* of all lines */
    string others;         /* lines that are no limits, one after the other */
    bool overlaps;         /* a copy would be moved over itself, which no process makes */
};

ZoneConf zone;

Policy policy_of_zone(uint8_t kind) {
    Policy policy = {};
    policy.algorithm = static_cast<Algorithm>(kind % 5);
    policy.window_ms = 60000;
    return policy;
}

string file_text() {
    struct stat info;
    CHECK(fstat(zone.override_file.fd, &info) == 0);
    string text(static_cast<size_t>(info.st_size), '\0');
    CHECK(pread(zone.override_file.fd, text.data(), text.size(), 0) == info.st_size);
    return text;
}

/* Returns the lines that count: those of a copy that is complete, or all before one that is
 * not, and before an order that is not. */
string lines_that_count(string text, bool *overlaps) {
    *overlaps = false;
    if (text.size() >= kCopyEndsBytes) {
        const size_t end = text.size() - kCopyEndsBytes;
        const string number = text.substr(end + kCopyEnds.size(), 20);
        if (text.compare(end, kCopyEnds.size(), kCopyEnds) == 0
            && number.find_first_not_of("0123456789") == string::npos
            && number.compare(0, 2, "00") == 0) {
            const uint64_t from = strtoull(number.c_str(), nullptr, 10);
            if (from <= end) {
                *overlaps = from < end - from;
                text = text.substr(from, end - from);
            }
        }
    }

    const string begins(kCopyBegins.substr(0, kCopyBegins.size() - 1));
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const bool is_torn = end == text.size() && text[at] == ' ';
        if (is_torn || text.compare(at, end - at, begins) == 0) { return text.substr(0, at); }

        at = end + 1;
    }

    return text;
}

uint64_t in_memory(uint64_t until_s) { return until_s >= kYear2105 ? kNever : until_s; }

Said said_by(const string &text) {
    Said said = {};
    const string lines = lines_that_count(text, &said.overlaps);
    for (size_t at = 0; at < lines.size();) {
        const size_t end = std::min(lines.find('\n', at), lines.size());
        const string text_of_line = lines.substr(at, end - at);
        std::vector<char> bytes(text_of_line.begin(), text_of_line.end());
        at = end + 1;

        OverrideLine line;
        ngx_str_t key;
        u_char room[64];
        bool is_limit = line.parse(bytes.data(), bytes.size(), zone.policy, zone.limit_max())
                        == OverrideLine::Kind::kOverride;
        if (is_limit) {
            key = to_str(line.key);
            if (key.len <= sizeof(room)) {
                append(room, line.key);
                key.data = room;
            }

            is_limit = read_key(zone, &key);
        }

        if (!is_limit) {
            said.others += text_of_line + "\n";
            continue;
        }

        const string name(view(key));
        const uint64_t until_s = in_memory(line.until_s);
        said.keys.insert(name);
        said.limits.erase(name);
        if (line.own.is_set() && until_s > static_cast<uint64_t>(ngx_time())) {
            said.limits[name] = {line.own, until_s};
        }
    }

    return said;
}

/* ---- a history ---- */

const char *const kKeys[] = {"a", "b", "c#\n", "\xff %", "10.0.0.1", "::1", "a b c", "d"};
const char *const kRates[] = {"5r/s", "0", "off", "100", "7/10s", "default", "1000/1h"};
constexpr char kAddresses[] = "\x0a\x01\x02\x03\x04\x05"; /* each four bytes of it */
constexpr size_t kOrders = 3;
constexpr size_t kZoneBytes = 64 * 1024;

class History {
public:
    explicit History(fuzz::Input &input) : input_(input) {
        const uint8_t kind = input_.byte();
        zone = {};
        zone.name = to_str("one");
        zone.policy = policy_of_zone(kind);
        zone.keys = (kind & 0x80) != 0 ? KeyKind::kAddresses : KeyKind::kTexts;
        zone.override_file.max = 1 + input_.below(12);
        zone.override_file.fd = memfd_create("limits", MFD_CLOEXEC);
        CHECK(zone.override_file.fd >= 0);
        table_.reset(zone_memory(kZoneBytes));
        zone.memory.table = zone_of(table_.get(), kZoneBytes, &zone.policy, 0);
        until_full = kNever;
        ngx_test_config = 0;
        start_anew();
        reload();
    }

    ~History() {
        (void)close(zone.override_file.fd);
        forget_process();
    }

    void step() {
        ngx_cached_time->sec += input_.flag() ? input_.below(40) : 0;
        const Said said = said_now();
        expected_ = said.limits;
        const string before = file_text();

        /* a copy that is moved over itself is lost if its process dies or the disk is full */
        if (said.overlaps) { until_full = kNever; }

        switch (input_.below(10)) {
        case 0:
        case 1:
        case 2:
        case 3:
            order();
            break;
        case 4:
            compact();
            break;
        case 5:
            edit();
            break;
        case 6:
            start_anew();
            reload();
            break;
        case 7:
            reload();
            break;
        case 8:
            test(before);
            break;
        default:
            until_full = input_.flag() ? input_.below(200) : kNever;
        }
    }

private:
    Said said_now() const { return said_by(file_text()); }

    /* Is there so little room that calls may fail? */
    static bool is_full() { return until_full < kNever / 2; }

    /* Lets the next process die, perhaps, after so many bytes. */
    void draw_death() {
        may_die = input_.below(4) == 0 && !said_now().overlaps;
        until_death = may_die ? input_.below(600) : 0;
    }

    /* A process has died or ended: another one has nothing of it. */
    void forget_process() {
        if (zone.worker.writes != nullptr) { ngx_free(zone.worker.writes); }

        zone.worker.writes = nullptr;
    }

    void start_anew() {
        const size_t bytes = (Overrides::bytes_for(zone.override_file.max) + 63) & ~size_t{63};
        overrides_.reset(zone_memory(bytes));
        memset(overrides_.get(), 0, bytes);
        zone.memory.aside.overrides = static_cast<Overrides *>(overrides_.get());
        zone.memory.aside.overrides->init(zone.override_file.max);
    }

    void died() {
        zone.worker.writes = nullptr;
        check_file();
    }

    void order() {
        std::vector<OverrideWrite> orders(1 + input_.below(kOrders));
        for (OverrideWrite &order : orders) {
            draw_order(order);
        }

        draw_death();
        const bool lives = lives_through([&] {
            for (OverrideWrite &order : orders) {
                write_override(order);
            }

            run_posted();
        });

        /* Of a batch that its process did not live to answer, the first ones may be kept, of those
         * that have room. */
        if (!lives) {
            zone.worker.writes = nullptr;
            Limits said = said_now().limits;
            bool is_kept = said == expected_;
            for (const OverrideWrite &order : orders) {
                if (order.result == OverrideWrite::Result::kNoRoom) { continue; }

                set(order);
                is_kept = is_kept || said == expected_;
            }

            CHECK(is_kept);
            return;
        }

        for (const OverrideWrite &order : orders) {
            CHECK(order.done.posted == 0);
            if (order.result == OverrideWrite::Result::kDone) { set(order); }
        }

        check_file();
        check_memory();
    }

    void draw_order(OverrideWrite &order) {
        order.zone = &zone;
        const size_t key = input_.below(std::size(kKeys));
        order.key
            = zone.keys == KeyKind::kTexts ? kKeys[key] : string_view(kAddresses + key % 3, 4);
        order.hash = zone.memory.table->hash(order.key);
        order.text = kRates[input_.below(std::size(kRates))];
        if (order.text != "default") {
            CHECK(order.own.parse(order.text, zone.policy, zone.limit_max()));
        }

        order.until_s = input_.flag() ? ngx_time() + 1 + input_.below(100) : kNoEnd;
        order.done.log = ngx_cycle->log;
        order.done.handler = [](ngx_event_t *) {};
    }

    void set(const OverrideWrite &order) {
        const string key(order.key);
        expected_.erase(key);
        if (order.own.is_set()) { expected_[key] = {order.own, order.until_s}; }
    }

    /* Runs what is posted, as the event loop does. */
    void run_posted() {
        while (!ngx_queue_empty(&ngx_posted_events)) {
            ngx_queue_t *q = ngx_queue_head(&ngx_posted_events);
            ngx_event_t *ev = ngx_queue_data(q, ngx_event_t, queue);
            ngx_delete_posted_event(ev);
            ev->handler(ev);
        }
    }

    void compact() {
        const Said before = said_now();
        const bool has_room = before.keys.size() <= zone.override_file.max;
        /* memory that nobody has read the file into yet is as another file's */
        const bool is_known = state_of_overrides(zone) != OverridesState::kReplaced;
        bool done = false;
        draw_death();
        if (!lives_through([&] { done = compact_overrides(ngx_cycle->log, zone); })) {
            died();
            return;
        }

        check_file();
        CHECK(done || is_full() || !is_known);
        if (done) {
            const Said after = said_now();
            CHECK(after.others == before.others);
            /* nothing is said twice */
            if (has_room) { CHECK(limits_in(file_text()) == after.limits.size()); }

            check_memory();
        }
    }

    /* Counts the lines of a file that was compacted. */
    static size_t limits_in(const string &text) {
        size_t n = 0;
        for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
            const size_t end = std::min(text.find('\n', at), text.size());
            string line = text.substr(at, end - at) + "\n";
            n += !said_by(line + "#").keys.empty();
            if (end == text.size()) { break; }
        }

        return n;
    }

    /* An operator writes into the file: text, an end of it less, or what only processes
     * write.  Nobody writes after a copy that is complete, nor two of them. */
    void edit() {
        string text = file_text();
        if (text.find(kCopyEnds) != string::npos) { return; }

        switch (input_.below(4)) {
        case 0:
            text.resize(input_.number() % (text.size() + 1));
            break;
        case 1:
            text += kCopyBegins;
            break;
        case 2: {
            string number = std::to_string(input_.number() % (text.size() + 1));
            text += kCopyEnds;
            text += string(20 - number.size(), '0') + number + "\n";
            break;
        }
        default:
            text += input_.text();
        }

        CHECK(__real_ftruncate(zone.override_file.fd, 0) == 0);
        CHECK(__real_pwrite(zone.override_file.fd, text.data(), text.size(), 0)
              == static_cast<ssize_t>(text.size()));
        const timespec times[2] = {{++edits_, 0}, {edits_, 0}};
        CHECK(futimens(zone.override_file.fd, times) == 0);
    }

    void reload() {
        draw_death();
        uint64_t unplaced;
        bool done = false;
        if (!lives_through([&] {
                done = load_overrides(ngx_cycle->log, zone, OverridesRepair::kAll, &unplaced);
            })) {
            died();
            return;
        }

        check_file();
        CHECK(done || is_full());
        if (done) {
            CHECK(state_of_overrides(zone) == OverridesState::kCurrent);
            check_memory();
        }
    }

    /* "nginx -t" has memory of its own, and leaves the file alone. */
    void test(const string &before) {
        Overrides *shared = zone.memory.aside.overrides;
        auto memory = std::move(overrides_);
        start_anew();
        uint64_t unplaced;
        CHECK(load_overrides(ngx_cycle->log, zone, OverridesRepair::kNothing, &unplaced));
        check_limits(false);
        overrides_ = std::move(memory);
        zone.memory.aside.overrides = shared;
        CHECK(file_text() == before);
    }

    /* What was answered is what the file says. */
    void check_file() const { CHECK(said_now().limits == expected_); }

    /* What the file says is in the memory. */
    void check_memory() {
        const auto &file = zone.memory.aside.overrides->file;
        CHECK(file.superseded.load() <= file.lines.load());
        if (state_of_overrides(zone) == OverridesState::kCurrent) { check_limits(true); }
    }

    /* A test lists nothing, as it has not moved a copy to where its lines will be. */
    void check_limits(bool is_listed) const {
        const Said said = said_now();
        const bool has_room = said.keys.size() <= zone.override_file.max;
        const Overrides &overrides = *zone.memory.aside.overrides;
        CHECK(overrides.count() <= zone.override_file.max);

        for (const auto &[key, limit] : said.limits) {
            Overrides::Entry entry;
            const bool is_there = overrides.find(zone.memory.table->hash(key), &entry);
            CHECK(is_there || !has_room);
            if (is_there) { CHECK((Limit{entry.own, entry.until_s} == limit)); }
        }

        if (is_listed) { check_list(said, has_room); }
    }

    static void check_list(const Said &said, bool has_room) {
        const auto now_s = static_cast<uint64_t>(ngx_time());
        ngx_pool_t *pool = ngx_create_pool(4096, ngx_cycle->log);
        Array<OverrideLine> listed;
        uint64_t place = 0;
        CHECK(list_overrides(zone, {}, 1000, pool, listed, &place) && place == 0);
        CHECK(listed.size() <= said.limits.size());
        CHECK(listed.size() == said.limits.size() || !has_room || said.overlaps);
        for (const OverrideLine &limit : listed) {
            CHECK(limit.own.is_set() && limit.until_s > now_s);
        }

        ngx_destroy_pool(pool);
    }

    struct Free {
        void operator()(void *memory) const { __real_free(memory); }
    };

    fuzz::Input &input_;
    Limits expected_;
    std::unique_ptr<void, Free> table_;
    std::unique_ptr<void, Free> overrides_;
    static inline time_t edits_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    ngx_queue_init(&ngx_posted_events);
    ngx_cached_time->sec = 1000000;
    {
        History history(input);
        for (unsigned i = 0; i < 100 && !input.empty(); i++) {
            history.step();
        }
    }

    CHECK(heap.empty());
    return 0;
}
