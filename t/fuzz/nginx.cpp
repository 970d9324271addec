/* Copyright (C) the limit_sliding authors */

/* Names that the objects which fuzzers link refer to.  The functions are of the
 * configuration, and no target calls them. */

#include <cstdlib>

#include "http/expression.hpp"
#include "http/parameter.hpp"
#include "ngx/ngx.hpp"

extern "C" {

static ngx_log_t fuzz_log;
static ngx_cycle_t fuzz_cycle = {nullptr, nullptr, &fuzz_log};

volatile ngx_cycle_t *ngx_cycle = &fuzz_cycle;
volatile ngx_msec_t ngx_current_msec;
ngx_queue_t ngx_posted_events;
ngx_rbtree_t ngx_event_timer_rbtree;
volatile ngx_time_t *ngx_cached_time;
ngx_module_t ngx_http_limit_sliding_module;
ngx_module_t ngx_http_core_module;

void ngx_cdecl ngx_log_error_core(ngx_uint_t, ngx_log_t *, ngx_err_t, const char *, ...) {}

void ngx_cdecl ngx_conf_log_error(ngx_uint_t, ngx_conf_t *, ngx_err_t, const char *, ...) {
    abort();
}

ngx_uint_t ngx_http_script_variables_count(ngx_str_t *) { abort(); }

} // extern "C"

namespace limit_sliding {

Expression *create_expression(ngx_conf_t *, const ngx_str_t &) { abort(); }
bool find_params(ngx_conf_t *, ngx_uint_t, Span<const ParamName>, Param *) { abort(); }

} // namespace limit_sliding
