/* Copyright (C) the limit_sliding authors */

#include "nginx.hpp"

#include <cstdlib>
#include <unordered_map>

#include "world.hpp"

using namespace sim;

namespace {

/* NGINX's memory on the heap, and how much of it. */
std::unordered_map<void *, size_t> heap;
unsigned failing_allocations;
int64_t time_of_day_step;

ngx_log_t sim_log;
ngx_cycle_t sim_cycle;
ngx_time_t sim_time;
ngx_core_conf_t sim_core;
void *sim_confs[] = {&sim_core};

void *allocate(size_t size) {
    if (failing_allocations != 0 && chance(failing_allocations)) {
        count("failed allocations");
        return nullptr;
    }

    void *p = malloc(size);
    /* what is not initialised shall not happen to be 0 */
    memset(p, 0x5a, size);
    heap[p] = size;
    return p;
}

} // namespace

extern "C" {

volatile ngx_cycle_t *ngx_cycle = &sim_cycle;
volatile ngx_msec_t ngx_current_msec;
volatile ngx_time_t *ngx_cached_time = &sim_time;
ngx_uint_t ngx_exiting;
ngx_uint_t ngx_process;
ngx_int_t ngx_process_slot;
ngx_uint_t ngx_pagesize = 4096;
ngx_uint_t ngx_cacheline_size = 64;
ngx_module_t ngx_core_module;

void ngx_time_update() { update_clock(); }

void __real_free(void *p);

void __wrap_free(void *p) {
    if (p != nullptr) { heap.erase(p); }

    __real_free(p);
}

void *ngx_alloc(size_t size, ngx_log_t *) { return allocate(size); }
void *ngx_memalign(size_t, size_t size, ngx_log_t *) { return allocate(size); }

void *ngx_calloc(size_t size, ngx_log_t *) {
    void *p = allocate(size);
    return p != nullptr ? memset(p, 0, size) : nullptr;
}

/* What depends on nothing but the seed. */
int clock_gettime(clockid_t, timespec *ts) noexcept {
    ts->tv_sec = static_cast<time_t>(now_us() / 1000000);
    ts->tv_nsec = static_cast<long>(now_us() % 1000000 * 1000);
    return 0;
}

int getentropy(void *buffer, size_t size) {
    for (size_t i = 0; i < size; i++) {
        static_cast<unsigned char *>(buffer)[i] = static_cast<unsigned char>(below(256));
    }
    return 0;
}

long random() { return static_cast<long>(below(uint64_t{1} << 31)); }

void ngx_log_error_core(ngx_uint_t level, ngx_log_t *, ngx_err_t err, const char *fmt, ...) {
    u_char line[500];
    va_list args;
    va_start(args, fmt);
    u_char *end = ngx_vslprintf(line, line + sizeof(line) - 1, fmt, args);
    va_end(args);
    *end = '\0';

    trace("log %d: %s (%d)", static_cast<int>(level), line, static_cast<int>(err));
    if (level <= NGX_LOG_CRIT) { broken("logged: %s", line); }
}

} // extern "C"

namespace sim {

void begin_nginx() {
    sim_log = {};
    sim_log.log_level = NGX_LOG_INFO;
    sim_cycle.log = &sim_log;
    sim_cycle.conf_ctx = reinterpret_cast<void ****>(sim_confs);
    ngx_core_module.index = 0;
    sim_core = {};
    ngx_exiting = 0;
    failing_allocations = 0;
    time_of_day_step = 0;
    ngx_event_timer_init(&sim_log);
    ngx_queue_init(&ngx_posted_events);
    ngx_queue_init(&ngx_posted_next_events);
    heap.clear();
}

void set_cycle_pool(ngx_pool_t *pool) { sim_cycle.pool = pool; }

void set_clock(uint64_t us) {
    ngx_current_msec = us / 1000;
    sim_time.sec = 1700000000 + static_cast<time_t>(us / 1000000) + time_of_day_step;
    sim_time.msec = us / 1000 % 1000;
}

void set_timer_resolution(uint64_t ms) { sim_core.timer_resolution = ms; }

void step_time_of_day(int64_t seconds) { time_of_day_step += seconds; }

uint64_t next_timer_us() {
    if (ngx_event_timer_rbtree.root == ngx_event_timer_rbtree.sentinel) { return UINT64_MAX; }

    return ngx_rbtree_min(ngx_event_timer_rbtree.root, ngx_event_timer_rbtree.sentinel)->key * 1000;
}

void run_timers() { ngx_event_expire_timers(); }
void run_posted() { ngx_event_process_posted(&sim_cycle, &ngx_posted_events); }

size_t live_objects(size_t *bytes) {
    *bytes = heap.empty() ? 0 : heap.begin()->second;
    return heap.size();
}

void set_failing_allocations(unsigned per_mille) { failing_allocations = per_mille; }

} // namespace sim
