/* Copyright (C) the limit_sliding authors */

/*
 * The structures by which NGINX finds the module: the directives, the hooks of
 * a configuration and of processes, the places in phases and among filters.
 */

#include "http/module.h"
#include "shim/layout.h"


static void *ngx_http_limit_sliding_begin_main_conf(ngx_conf_t *cf);
static ngx_int_t ngx_http_limit_sliding_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_limit_sliding_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_limit_sliding_enter_cycle(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_limit_sliding_usage_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_limit_sliding_late_init(ngx_conf_t *cf);


ngx_http_output_header_filter_pt
    ngx_http_limit_sliding_next_header_filter;
ngx_http_output_header_filter_pt
    ngx_http_limit_sliding_late_next_header_filter;
ngx_http_output_header_filter_pt
    ngx_http_limit_sliding_usage_next_header_filter;
ngx_http_output_body_filter_pt
    ngx_http_limit_sliding_usage_next_body_filter;


#define NGX_HTTP_LIMIT_SLIDING_PLACES                                         \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF


static ngx_command_t  ngx_http_limit_sliding_commands[] = {

    { .name = ngx_string("limit_sliding_zone"),
      .type = NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      .set = ngx_http_limit_sliding_zone },

    { .name = ngx_string("limit_sliding_redis"),
      .type = NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_TAKE1,
      .set = ngx_http_limit_sliding_redis },

    { .name = ngx_string("limit_sliding"),
      .type = NGX_HTTP_LIMIT_SLIDING_PLACES|NGX_CONF_1MORE,
      .set = ngx_http_limit_sliding,
      .conf = NGX_HTTP_LOC_CONF_OFFSET },

    { .name = ngx_string("limit_sliding_status"),
      .type = NGX_HTTP_LIMIT_SLIDING_PLACES|NGX_CONF_TAKE1,
      .set = ngx_http_limit_sliding_status,
      .conf = NGX_HTTP_LOC_CONF_OFFSET },

    { .name = ngx_string("limit_sliding_log_level"),
      .type = NGX_HTTP_LIMIT_SLIDING_PLACES|NGX_CONF_1MORE,
      .set = ngx_http_limit_sliding_log_level,
      .conf = NGX_HTTP_LOC_CONF_OFFSET },

    { .name = ngx_string("limit_sliding_dry_run"),
      .type = NGX_HTTP_LIMIT_SLIDING_PLACES|NGX_CONF_FLAG,
      .set = ngx_http_limit_sliding_dry_run,
      .conf = NGX_HTTP_LOC_CONF_OFFSET },

    { .name = ngx_string("limit_sliding_api"),
      .type = NGX_HTTP_LOC_CONF|NGX_CONF_ANY,
      .set = ngx_http_limit_sliding_api,
      .conf = NGX_HTTP_LOC_CONF_OFFSET },

    { .name = ngx_string("limit_sliding_headers"),
      .type = NGX_HTTP_LIMIT_SLIDING_PLACES|NGX_CONF_1MORE,
      .set = ngx_http_limit_sliding_headers,
      .conf = NGX_HTTP_LOC_CONF_OFFSET },

    { .name = ngx_string("limit_sliding_client"),
      .type = NGX_HTTP_LIMIT_SLIDING_PLACES|NGX_CONF_1MORE,
      .set = ngx_http_limit_sliding_client,
      .conf = NGX_HTTP_LOC_CONF_OFFSET },

    { .name = ngx_string("limit_sliding_usage"),
      .type = NGX_HTTP_LIMIT_SLIDING_PLACES|NGX_CONF_TAKE1,
      .set = ngx_http_limit_sliding_usage,
      .conf = NGX_HTTP_LOC_CONF_OFFSET },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_limit_sliding_module_ctx = {
    .preconfiguration = ngx_http_limit_sliding_preconfiguration,
    .postconfiguration = ngx_http_limit_sliding_init,
    .create_main_conf = ngx_http_limit_sliding_begin_main_conf,
    .init_main_conf = ngx_http_limit_sliding_init_main_conf,
    .create_loc_conf = ngx_http_limit_sliding_create_loc_conf,
    .merge_loc_conf = ngx_http_limit_sliding_merge_loc_conf
};


ngx_module_t  ngx_http_limit_sliding_module = {
    NGX_MODULE_V1,
    .ctx = &ngx_http_limit_sliding_module_ctx,
    .commands = ngx_http_limit_sliding_commands,
    .type = NGX_HTTP_MODULE,
    .init_module = ngx_http_limit_sliding_enter_cycle,
    .init_process = ngx_http_limit_sliding_init_process,
    .exit_process = ngx_http_limit_sliding_exit_process
};


static ngx_http_module_t  ngx_http_limit_sliding_usage_filter_module_ctx = {
    .preconfiguration = ngx_http_limit_sliding_usage_add_variables,
    .postconfiguration = ngx_http_limit_sliding_usage_init
};


/*
 * The filter of usage is a module of its own, as a module has one place among
 * the filters: here before filters such as gzip.  Its configuration is part of
 * the first module's.
 */

ngx_module_t  ngx_http_limit_sliding_usage_filter_module = {
    NGX_MODULE_V1,
    .ctx = &ngx_http_limit_sliding_usage_filter_module_ctx,
    .type = NGX_HTTP_MODULE
};


static ngx_http_module_t  ngx_http_limit_sliding_late_filter_module_ctx = {
    .postconfiguration = ngx_http_limit_sliding_late_init
};


/*
 * The late filter is before "add_header" in the order, so NGINX calls it after.
 * It gets its type once NGINX has counted its modules: a counted module has
 * room in each request, which NGINX would clear.
 */

ngx_module_t  ngx_http_limit_sliding_late_filter_module = {
    NGX_MODULE_V1,
    .ctx = &ngx_http_limit_sliding_late_filter_module_ctx
};


static void *
ngx_http_limit_sliding_begin_main_conf(ngx_conf_t *cf)
{
    if (ngx_http_limit_sliding_check_layout(cf) != NGX_OK) {
        return NULL;
    }

    ngx_http_limit_sliding_late_filter_module.type = NGX_HTTP_MODULE;
    ngx_http_limit_sliding_late_filter_module.ctx_index =
                                       ngx_http_limit_sliding_module.ctx_index;

    return ngx_http_limit_sliding_create_main_conf(cf);
}


static ngx_int_t
ngx_http_limit_sliding_preconfiguration(ngx_conf_t *cf)
{
    if (ngx_http_limit_sliding_check_variables(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_limit_sliding_add_variables(cf);
}


/*
 * Handlers that reserve a place in a phase, which gets a checker once the
 * phases are complete.  NGINX never calls them; the error would fail the
 * request instead of passing it without a limit.
 */

static ngx_int_t
ngx_http_limit_sliding_before_auth(ngx_http_request_t *r)
{
    return NGX_ERROR;
}


static ngx_int_t
ngx_http_limit_sliding_after_auth(ngx_http_request_t *r)
{
    return NGX_ERROR;
}


static struct {
    ngx_uint_t           need;
    ngx_uint_t           phase;
    ngx_http_handler_pt  handler;
} ngx_http_limit_sliding_phases[] = {
    { NGX_HTTP_LIMIT_SLIDING_BEFORE_AUTH, NGX_HTTP_ACCESS_PHASE,
      ngx_http_limit_sliding_before_auth },
    { NGX_HTTP_LIMIT_SLIDING_AFTER_AUTH, NGX_HTTP_PRECONTENT_PHASE,
      ngx_http_limit_sliding_after_auth },
    { NGX_HTTP_LIMIT_SLIDING_SETTLES, NGX_HTTP_LOG_PHASE,
      ngx_http_limit_sliding_settle }
};


/*
 * Handlers of a phase run in reverse order of registration.  NGINX's
 * authentication modules are registered before, so limits run first.  A phase
 * that no location needs gets no handler, which would cost each request time.
 */

static ngx_int_t
ngx_http_limit_sliding_init(ngx_conf_t *cf)
{
    ngx_uint_t                  i, needs, phase;
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    if (ngx_http_limit_sliding_complete(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    needs = ngx_http_limit_sliding_needs(cf);
    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    for (i = 0; i < 3; i++) {
        if (!(needs & ngx_http_limit_sliding_phases[i].need)) {
            continue;
        }

        phase = ngx_http_limit_sliding_phases[i].phase;

        h = ngx_array_push(&cmcf->phases[phase].handlers);
        if (h == NULL) {
            return NGX_ERROR;
        }

        *h = ngx_http_limit_sliding_phases[i].handler;
    }

    if (needs & NGX_HTTP_LIMIT_SLIDING_HEADERS) {
        ngx_http_limit_sliding_next_header_filter = ngx_http_top_header_filter;
        ngx_http_top_header_filter = ngx_http_limit_sliding_header_filter;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_late_init(ngx_conf_t *cf)
{
    if (ngx_http_limit_sliding_needs(cf) & NGX_HTTP_LIMIT_SLIDING_ONE_OF_EACH) {
        ngx_http_limit_sliding_late_next_header_filter =
                                                    ngx_http_top_header_filter;
        ngx_http_top_header_filter = ngx_http_limit_sliding_late_header_filter;
    }

    return NGX_OK;
}


/* The filter is registered only if some location uses it. */

static ngx_int_t
ngx_http_limit_sliding_usage_init(ngx_conf_t *cf)
{
    if (ngx_http_limit_sliding_needs(cf) & NGX_HTTP_LIMIT_SLIDING_USAGE) {
        ngx_http_limit_sliding_usage_next_header_filter =
                                                    ngx_http_top_header_filter;
        ngx_http_top_header_filter = ngx_http_limit_sliding_usage_header_filter;

        ngx_http_limit_sliding_usage_next_body_filter =
                                                      ngx_http_top_body_filter;
        ngx_http_top_body_filter = ngx_http_limit_sliding_usage_body_filter;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_enter_cycle(ngx_cycle_t *cycle)
{
    ngx_http_phase_handler_t   *ph;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_core_module);

    if (cmcf) {
        for (ph = cmcf->phase_engine.handlers; ph->checker; ph++) {

            if (ph->handler == ngx_http_limit_sliding_before_auth) {
                ph->checker = ngx_http_limit_sliding_check_before_auth;

            } else if (ph->handler == ngx_http_limit_sliding_after_auth) {
                ph->checker = ngx_http_limit_sliding_check_after_auth;
            }
        }
    }

    return ngx_http_limit_sliding_init_module(cycle);
}
