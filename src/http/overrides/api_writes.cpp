/* Copyright (C) the limit_sliding authors */

#include "http/overrides/api_writes.hpp"

#include <unistd.h>

#include "http/conf/written_key.hpp"
#include "http/overrides/file_compaction.hpp"
#include "http/overrides/file_load.hpp"
#include "http/overrides/limits_file.hpp"
#include "ngx/containers.hpp"
#include "ngx/event.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

#if (NGX_THREADS)
extern "C" {
#include <ngx_thread_pool.h>
}
#endif

namespace limit_sliding {

using Result = OverrideWrite::Result;
using OverrideWrites = List<OverrideWrite, &OverrideWrite::link>;

/* The API writes of a worker to a zone.  One batch or compaction runs at a time, in a thread,
 * because a lock of the file belongs to the process and does not separate threads.  API writes
 * that arrive meanwhile form the next batch, with one write() and one sync for all. */
struct OverrideQueue {
    ZoneConf *zone;
    OverrideWrites waiting;
    OverrideWrites batch;
    bool is_busy;
    bool compacts;        /* a compaction is running */
    time_t compact_after; /* earliest UNIX time of the next compaction, after a failure */
    ngx_event_t done;     /* posted at the end of work without a thread */
    ngx_event_t watch;    /* a timer, set if the file has a name */
#if (NGX_THREADS)
    ngx_thread_task_t task;
    ngx_event_t busy; /* a timer: NGINX ends an exiting worker that has none */
#endif
};

namespace {

constexpr time_t kCompactAgainAfter = 60;
constexpr ngx_msec_t kBusyMs = 60000;
constexpr ngx_msec_t kWatchMs = 1000;

/* Writes a batch to the file, and then to the memory. */
class Batch {
public:
    explicit Batch(OverrideQueue &queue)
        : queue_(queue), zone_(*queue.zone), overrides_(*queue.zone->memory.aside.overrides) {}

    void run() {
        OverridesLock lock(zone_.override_file.fd);
        const Result result = lock.wait() ? write() : failed("fcntl()");

        for (auto &write : queue_.batch) {
            if (write.result == Result::kDone) { write.result = result; }
        }

        ngx_free(text_);
    }

private:
    Result write() {
        const auto state = state_of_overrides(zone_);
        if (state == OverridesState::kReplaced) { return Result::kReplaced; }

        /* A last line without end was left alone until a line is to follow it. */
        const bool is_watch = queue_.batch.empty();
        char last = '\n';
        if (!is_watch && state == OverridesState::kCurrent && !read_last(&last)) {
            return Result::kFailed;
        }

        const auto repair = is_watch ? OverridesRepair::kCopies : OverridesRepair::kAll;
        if ((state == OverridesState::kChanged || last != '\n')
            && !load_overrides(ngx_cycle->log, zone_, repair)) {
            return Result::kFailed;
        }

        if (is_watch) { return Result::kDone; }

        begin_ = overrides_.file.size.load(std::memory_order_relaxed);
        if (!find_room()) {
            overrides_.remove_ended(static_cast<uint64_t>(ngx_time()));
            (void)find_room();
        }

        if (!make_text()) { return Result::kFailed; }

        const Result result = append();
        if (result == Result::kDone) { enter(); }

        return result;
    }

    /* Sets *last to the last byte of the file, which is current, or to a newline if it is empty.
     * Logs an error and returns false if the file cannot be read. */
    bool read_last(char *last) const {
        const uint64_t size = overrides_.file.size.load(std::memory_order_relaxed);
        *last = '\n';
        if (size == 0 || read_at(zone_.override_file.fd, last, 1, size - 1) == 1) { return true; }

        (void)failed("pread()");
        return false;
    }

    /* Returns true if the key has an override once the earlier API writes are entered. */
    bool has_override_before(const OverrideWrite &write) const {
        Overrides::Entry entry;
        bool has_override = overrides_.find(write.hash, &entry);
        for (auto &other : queue_.batch) {
            if (&other == &write) { break; }

            if (other.hash == write.hash && other.result == Result::kDone) {
                has_override = other.own.is_set();
            }
        }

        return has_override;
    }

    /* Refuses API writes for new keys without room.  Several writes to a key take one place, and a
     * removal frees a place.  Returns false if a write was refused. */
    bool find_room() {
        const uint64_t max = overrides_.max();
        uint64_t used = overrides_.count();
        bool have_room = true;
        for (auto &write : queue_.batch) {
            const bool had_override = has_override_before(write);
            const bool has_room = !write.own.is_set() || had_override || used < max;
            write.result = has_room ? Result::kDone : Result::kNoRoom;
            used += has_room && write.own.is_set();
            used -= had_override;
            have_room &= has_room;
        }

        return have_room;
    }

    template <class Visit>
    void each(const Visit &visit) {
        for (auto &write : queue_.batch) {
            if (write.result == Result::kDone) { visit(write); }
        }
    }

    /* Prints the lines of the batch. */
    bool make_text() {
        size_t bytes = 1;
        each([&](auto &write) { bytes += write.size_max() + 3 * NGX_INET6_ADDRSTRLEN; });
        text_ = static_cast<char *>(ngx_alloc(bytes, ngx_cycle->log));
        if (text_ == nullptr) { return false; }

        /* The operator's last line may lack a newline. */
        char last;
        if (!read_last(&last)) { return false; }

        if (bytes > 1 && last != '\n') { text_[size_++] = '\n'; }

        each([&](auto &write) {
            u_char buf[NGX_INET6_ADDRSTRLEN];
            OverrideLine line = write;
            line.key = text_of_key(zone_, write.key, buf);
            write.at = begin_ + size_;
            size_ += line.write(text_ + size_);
        });
        return true;
    }

    /* Appends the text to the file.  A failed write leaves no text behind. */
    Result append() {
        const auto fd = zone_.override_file.fd;
        if (begin_ + size_ > kOverrideFileMax) { return Result::kDiskFull; }

        if (size_ == 0) { return Result::kDone; }

        const bool is_written = write_fully(fd, {text_, size_}, begin_);
        if (is_written && fdatasync(fd) == 0) { return Result::kDone; }

        const auto error = ngx_errno;
        (void)failed(is_written ? "fdatasync()" : "pwrite()");

        if (ftruncate(fd, static_cast<off_t>(begin_)) == 0) { (void)mark_current(zone_, begin_); }

        return error == NGX_ENOSPC || error == EDQUOT || error == EFBIG ? Result::kDiskFull
                                                                        : Result::kFailed;
    }

    void enter() {
        const auto now_s = static_cast<uint64_t>(ngx_time());
        auto &file = overrides_.file;
        uint64_t lines = 0, superseded = 0;

        each([&](auto &write) {
            Overrides::Entry entry;
            const bool is_known = overrides_.find(write.hash, &entry);
            lines++;
            superseded += is_known + !write.own.is_set();
            (void)overrides_.set(write.hash, {write.own, write.until_s, write.at}, now_s);
        });

        /* Other processes read these estimates without the lock. */
        file.lines.fetch_add(lines, std::memory_order_relaxed);
        file.superseded.fetch_add(superseded, std::memory_order_relaxed);
        (void)mark_current(zone_, begin_ + size_);
    }

    Result failed(const char *what) const {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, ngx_errno,
                      "limit_sliding zone \"%V\": %s \"%V\" failed", &zone_.name, what,
                      &zone_.override_file.path);
        return Result::kFailed;
    }

    OverrideQueue &queue_;
    ZoneConf &zone_;
    Overrides &overrides_;
    uint64_t begin_ = 0; /* offset of the batch in the file */
    char *text_ = nullptr;
    size_t size_ = 0;
};

/* Runs a batch or a compaction, in a thread if possible. */
void work(OverrideQueue &queue) {
    if (!queue.compacts) {
        Batch(queue).run();
    } else if (!compact_overrides(ngx_cycle->log, *queue.zone)) {
        queue.compact_after = ngx_time() + kCompactAgainAfter;
    }
}

void start(OverrideQueue &queue);

/* Posts the results, and starts the next work.  Runs in the worker. */
void end(OverrideQueue &queue) {
    while (!queue.batch.empty()) {
        auto &write = queue.batch.pop_front();
        post_event(write.done);
    }

    queue.compacts
        = !queue.compacts && needs_compaction(*queue.zone) && ngx_time() >= queue.compact_after;
    queue.is_busy = false;
#if (NGX_THREADS)
    if (queue.busy.timer_set) { ngx_del_timer(&queue.busy); }
#endif
    if (queue.compacts || !queue.waiting.empty()) { start(queue); }
}

#if (NGX_THREADS)
void stay_busy(OverrideQueue &queue) { ngx_add_timer(&queue.busy, kBusyMs); }
#endif

void start(OverrideQueue &queue) {
    queue.is_busy = true;

    while (!queue.compacts && !queue.waiting.empty()) {
        queue.batch.push_back(queue.waiting.pop_front());
    }

#if (NGX_THREADS)
    if (auto *pool = queue.zone->override_file.pool; pool != nullptr) {
        queue.task.ctx = &queue;
        queue.task.handler
            = [](void *data, ngx_log_t *) { work(*static_cast<OverrideQueue *>(data)); };
        init_event<end>(queue.task.event, queue);
        if (ngx_thread_task_post(pool, &queue.task) == NGX_OK) {
            stay_busy(queue);
            return;
        }

        for (auto &write : queue.batch) {
            write.result = Result::kFailed;
        }

        post_event(queue.done);
        return;
    }
#endif

    work(queue);
    post_event(queue.done);
}

/* Starts a batch without writes if the file may have changed: the batch loads the file. */
void watch(OverrideQueue &queue) {
    if (!queue.is_busy && may_have_changed(*queue.zone)) { start(queue); }

    ngx_add_timer(&queue.watch, kWatchMs);
}

OverrideQueue *queue_of(ZoneConf &zone) {
    auto &queue = zone.worker.writes;
    if (queue != nullptr) { return queue; }

    queue = create_on_heap<OverrideQueue>();
    if (queue == nullptr) { return nullptr; }

    queue->zone = &zone;
    queue->waiting.init();
    queue->batch.init();
    init_event<end>(queue->done, *queue);
#if (NGX_THREADS)
    init_event<stay_busy>(queue->busy, *queue);
#endif
    return queue;
}

#if (NGX_THREADS)
/* Returns true if a thread can wake its worker.  With the event methods "poll" and "select",
 * workers do not even start if there is a pool of threads.  Returns false if events{} follows
 * http{}, because the method is unknown then. */
bool can_use_threads(const ngx_cycle_t &cycle) {
    if (ngx_get_conf(cycle.conf_ctx, ngx_events_module) == nullptr) { return false; }

    const auto &events = *static_cast<ngx_event_conf_t *>(
        ngx_event_get_conf(cycle.conf_ctx, ngx_event_core_module));

    for (auto **module = cycle.modules; *module != nullptr; module++) {
        if ((*module)->type == NGX_EVENT_MODULE && (*module)->ctx_index == events.use) {
            return static_cast<ngx_event_module_t *>((*module)->ctx)->actions.notify != nullptr;
        }
    }

    return false;
}
#endif

} // namespace

bool prepare_writes([[maybe_unused]] ngx_conf_t *cf, [[maybe_unused]] const Zones &zones) {
#if (NGX_THREADS)
    if (!can_use_threads(*cf->cycle)) { return true; }

    for (auto *zone : zones) {
        if (zone->is_remote()) { continue; }

        zone->override_file.pool = ngx_thread_pool_add(cf, nullptr);
        if (zone->override_file.pool == nullptr) { return false; }
    }
#endif
    return true;
}

void watch_overrides(ZoneConf &zone) {
    /* A single process ends, or frees its configuration, regardless of timers. */
    if (ngx_process != NGX_PROCESS_WORKER || zone.override_file.path.len == 0) { return; }

    auto *queue = queue_of(zone);
    if (queue == nullptr) { return; }

    init_event<watch>(queue->watch, *queue);
    queue->watch.cancelable = 1;
    ngx_add_timer(&queue->watch, kWatchMs);
}

void write_override(OverrideWrite &write) {
    write.result = Result::kDone;

    auto *queue = queue_of(*write.zone);
    if (queue == nullptr) {
        write.result = Result::kFailed;
        post_event(write.done);
        return;
    }

    queue->waiting.push_back(write);
    if (!queue->is_busy) { start(*queue); }
}

} // namespace limit_sliding
