/* Copyright (C) the limit_sliding authors */

/* Names that the objects which fuzzers link refer to.  The functions are of the
 * configuration, or of limited requests, and no target calls them. */

#include <cstdlib>

#include "http/conf/configuration.hpp"
#include "http/conf/policy_header.hpp"
#include "http/response/log.hpp"
#include "http/values/expression.hpp"
#include "http/values/parameter.hpp"
#include "ngx/ngx.hpp"

extern "C" {
#include <ngx_thread_pool.h>
}

extern "C" {

static ngx_time_t fuzz_time;
static ngx_log_t fuzz_log = {NGX_LOG_DEBUG};
static ngx_cycle_t fuzz_cycle = {nullptr, nullptr, &fuzz_log};

volatile ngx_cycle_t *ngx_cycle = &fuzz_cycle;
volatile ngx_msec_t ngx_current_msec;
ngx_queue_t ngx_posted_events;
ngx_rbtree_t ngx_event_timer_rbtree;
volatile ngx_time_t *ngx_cached_time = &fuzz_time;
ngx_uint_t ngx_process;
ngx_int_t ngx_process_slot;
ngx_http_output_header_filter_pt ngx_http_top_header_filter;
ngx_uint_t ngx_test_config;
ngx_module_t ngx_http_limit_sliding_module;
ngx_module_t ngx_http_core_module;

/* Reads what it is given, so that a sanitizer sees what is none. */
void ngx_cdecl ngx_log_error_core(ngx_uint_t, ngx_log_t *, ngx_err_t, const char *format, ...) {
    u_char line[NGX_MAX_ERROR_STR];
    va_list args;
    va_start(args, format);
    (void)ngx_vslprintf(line, line + sizeof(line), format, args);
    va_end(args);
}

void ngx_cdecl ngx_conf_log_error(ngx_uint_t, ngx_conf_t *, ngx_err_t, const char *, ...) {
    abort();
}

ngx_uint_t ngx_http_script_variables_count(ngx_str_t *) { abort(); }
ngx_int_t ngx_http_complex_value(ngx_http_request_t *, ngx_http_complex_value_t *, ngx_str_t *) {
    abort();
}
ngx_shm_zone_t *ngx_shared_memory_add(ngx_conf_t *, ngx_str_t *, size_t, void *) { abort(); }
void *ngx_slab_alloc(ngx_slab_pool_t *, size_t) { abort(); }
void *ngx_slab_calloc(ngx_slab_pool_t *, size_t) { abort(); }
ngx_int_t ngx_thread_task_post(ngx_thread_pool_t *, ngx_thread_task_t *) { abort(); }
ngx_thread_pool_t *ngx_thread_pool_add(ngx_conf_t *, ngx_str_t *) { abort(); }

} // extern "C"

namespace limit_sliding {

Expression *create_expression(ngx_conf_t *, const ngx_str_t &) { abort(); }
u_char *append_number(u_char *, uint64_t, ngx_str_t *) { abort(); }
u_char *print_policy(u_char *, ZoneConf *, uint64_t, uint64_t) { abort(); }
void log_rejected(ngx_http_request_t *, const LocConf &, const Claim &, const Verdict &) {
    abort();
}
bool find_params(ngx_conf_t *, ngx_uint_t, Span<const ParamName>, const Elsewhere &, Param *) {
    abort();
}

} // namespace limit_sliding
