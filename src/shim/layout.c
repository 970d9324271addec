/* Copyright (C) the limit_sliding authors */

/*
 * The binary tells of its structures by tables of offsets, by sizes, and by
 * what its functions do to memory that is ours.  Each check relies on
 * structures that have passed before, and gives NGINX's functions rooms in
 * which every word is harmless, so that a function that finds another field
 * there does no harm.
 *
 * No check covers ngx_command_t, ngx_module_t and ngx_http_module_t, which
 * NGINX reads before any hook of a module runs;
 * ngx_http_compile_complex_value_t, of which no function gives anything back;
 * and new bits that move no field, unless a check reads them.  Zones compare
 * ngx_slab_pool_t.
 */

#include "http/module.h"
#include "shim/layout.h"


/* Words of a room, more than any of the structures takes. */
#define WORDS  1024
#define ROOMS  13

#define EXPECT(type, condition)  if (!(condition)) { return #type; }
#define CHECK(call)  { const char *other = call; if (other) { return other; } }

/* Structures that are allocated one after the other tell their sizes, unless
 * each has memory of its own. */
#if (NGX_DEBUG_PALLOC)
#define ENDS_AT(p, end)  1
#else
#define ENDS_AT(p, end)  ((u_char *) ((p) + 1) == (u_char *) (end))
#endif


typedef struct {
    const char  *type;
    const char  *name;                     /* in a table of NGINX */
    ngx_uint_t   offset;
} ngx_http_limit_sliding_field_t;


#define FIELD(type, field, name)  { #type, name, offsetof(type, field) }
#define SET_BY_NAME(type, field)  FIELD(type, field, #field)

static ngx_http_limit_sliding_field_t  ngx_http_limit_sliding_directives[] = {
    SET_BY_NAME(ngx_core_conf_t, timer_resolution),
    SET_BY_NAME(ngx_http_core_main_conf_t, server_names_hash_bucket_size),
    SET_BY_NAME(ngx_http_core_srv_conf_t, request_pool_size),
    SET_BY_NAME(ngx_http_core_srv_conf_t, underscores_in_headers),
    SET_BY_NAME(ngx_http_core_loc_conf_t, client_max_body_size),
    SET_BY_NAME(ngx_http_core_loc_conf_t, satisfy),
    SET_BY_NAME(ngx_http_core_loc_conf_t, resolver_timeout),
    SET_BY_NAME(ngx_http_core_loc_conf_t, log_not_found),
    { NULL, NULL, 0 }
};

static ngx_http_limit_sliding_field_t  ngx_http_limit_sliding_headers_in[] = {
    FIELD(ngx_http_headers_in_t, host, "Host"),
    FIELD(ngx_http_headers_in_t, authorization, "Authorization"),
    { NULL, NULL, 0 }
};

static ngx_http_limit_sliding_field_t  ngx_http_limit_sliding_headers_out[] = {
    FIELD(ngx_http_headers_out_t, content_encoding, "Content-Encoding"),
    FIELD(ngx_http_headers_out_t, etag, "ETag"),
    { NULL, NULL, 0 }
};

static ngx_http_limit_sliding_field_t  ngx_http_limit_sliding_variables[] = {
    FIELD(ngx_http_request_t, args, "args"),
    FIELD(ngx_http_request_t, unparsed_uri, "request_uri"),
    { NULL, NULL, 0 }
};


/* NGINX counts requests here, if it has the module stub_status. */
extern ngx_atomic_t  *ngx_stat_reading __attribute__((weak));
extern ngx_atomic_t  *ngx_stat_requests __attribute__((weak));

/* A queue that OpenResty's patches add, as they add bits to ngx_event_t and
 * ngx_http_request_t. */
extern ngx_queue_t  ngx_posted_delayed_events __attribute__((weak));

#ifdef HAVE_POSTED_DELAYED_EVENTS_PATCH
#define BUILT_FOR_OPENRESTY  1
#else
#define BUILT_FOR_OPENRESTY  0
#endif

/* What NGINX has passed to our filters. */
static ngx_uint_t  ngx_http_limit_sliding_headers_passed;
static ngx_buf_t  *ngx_http_limit_sliding_buf_passed;


static void *
ngx_http_limit_sliding_fill(void **room, void *word)
{
    ngx_uint_t  i;

    for (i = 0; i < WORDS; i++) {
        room[i] = word;
    }

    return room;
}


static ngx_uint_t
ngx_http_limit_sliding_is_named(ngx_str_t *name, const char *text)
{
    return name->len == ngx_strlen(text)
           && ngx_strncasecmp(name->data, (u_char *) text, name->len) == 0;
}


/* Compares an entry of a table of NGINX. */

static const char *
ngx_http_limit_sliding_check_field(ngx_http_limit_sliding_field_t *field,
    ngx_str_t *name, ngx_uint_t offset)
{
    for ( /* void */ ; field->name; field++) {
        if (offset != field->offset
            && ngx_http_limit_sliding_is_named(name, field->name))
        {
            return field->type;
        }
    }

    return NULL;
}


static const char *
ngx_http_limit_sliding_check_tables(void)
{
    ngx_uint_t              i;
    ngx_command_t          *cmd;
    ngx_http_header_t      *in;
    ngx_http_header_out_t  *out;

    ngx_module_t  *modules[] = { &ngx_core_module, &ngx_http_core_module };

    for (i = 0; i < 2; i++) {
        for (cmd = modules[i]->commands; cmd->name.len; cmd++) {
            CHECK(ngx_http_limit_sliding_check_field(
                      ngx_http_limit_sliding_directives,
                      &cmd->name, cmd->offset))
        }
    }

    for (in = ngx_http_headers_in; in->name.len; in++) {
        CHECK(ngx_http_limit_sliding_check_field(
                  ngx_http_limit_sliding_headers_in, &in->name, in->offset))
    }

    for (out = ngx_http_headers_out; out->name.len; out++) {
        CHECK(ngx_http_limit_sliding_check_field(
                  ngx_http_limit_sliding_headers_out, &out->name, out->offset))
    }

    return NULL;
}


/* The name of the host is the last field. */

static const char *
ngx_http_limit_sliding_check_cycle(ngx_cycle_t *cycle, ngx_conf_t *cf)
{
    u_char  name[NGX_MAXHOSTNAMELEN];

    if (gethostname((char *) name, NGX_MAXHOSTNAMELEN) == 0) {
        name[NGX_MAXHOSTNAMELEN - 1] = '\0';

        EXPECT(ngx_cycle_t, ngx_http_limit_sliding_is_named(&cycle->hostname,
                                                            (char *) name))
    }

    EXPECT(ngx_cycle_t, cycle->pool == cf->pool && cycle->log == cf->log)
    EXPECT(ngx_open_file_t, cycle->open_files.size == sizeof(ngx_open_file_t))
    EXPECT(ngx_listening_t, cycle->listening.size == sizeof(ngx_listening_t))
    EXPECT(ngx_shm_zone_t, cycle->shared_memory.size == sizeof(ngx_shm_zone_t))

    return NULL;
}


static const char *
ngx_http_limit_sliding_check_pool(ngx_pool_t *pool)
{
    ngx_buf_t           *b;
    ngx_list_t          *l;
    ngx_array_t         *a;
    ngx_pool_cleanup_t  *cln;

    EXPECT(ngx_pool_t, ENDS_AT(pool, pool->d.last)
                       && pool->d.end == (u_char *) pool + NGX_DEFAULT_POOL_SIZE
                       && pool->max == NGX_MAX_ALLOC_FROM_POOL
                       && pool->current == pool && !pool->chain && !pool->large
                       && !pool->cleanup && pool->log)

    cln = ngx_pool_cleanup_add(pool, 1);
    a = ngx_array_create(pool, 3, 24);
    l = ngx_list_create(pool, 3, 24);
    b = ngx_create_temp_buf(pool, 24);

    EXPECT(ngx_pool_cleanup_t, cln && pool->cleanup == cln && !cln->handler
                               && !cln->next && ENDS_AT(cln, cln->data))

    EXPECT(ngx_array_t, a && a->elts && !a->nelts && a->size == 24
                        && a->nalloc == 3 && a->pool == pool)

    EXPECT(ngx_list_t, l && l->last == &l->part && l->part.elts
                       && !l->part.nelts && !l->part.next && l->size == 24
                       && l->nalloc == 3 && l->pool == pool)

    EXPECT(ngx_buf_t, b && b->pos && b->pos == b->last && b->pos == b->start
                      && b->end == b->pos + 24 && b->temporary && !b->last_buf)

    return NULL;
}


/*
 * NGINX takes a connection from a cycle of ours.  It clears the connection and
 * its events, which tells their sizes, and sets some of their fields.
 */

static const char *
ngx_http_limit_sliding_check_connection(ngx_connection_t *c, ngx_event_t *ev,
    ngx_cycle_t *cycle, ngx_log_t *log)
{
    ngx_connection_t      *got;
    volatile ngx_cycle_t  *saved;

    ngx_http_limit_sliding_fill((void **) c, ev);
    ngx_http_limit_sliding_fill((void **) ev, (void *) -1);

    cycle->free_connections = c;
    cycle->free_connection_n = 1;

    saved = ngx_cycle;
    cycle->log = saved->log;
    ngx_cycle = cycle;
    got = ngx_get_connection(7, log);
    ngx_cycle = saved;

    EXPECT(ngx_connection_t, got == c && c->fd == 7 && c->log == log && !c->data
                             && c->read == ev && c->write == ev && !c->send
                             && *((void **) (c + 1) - 1) == NULL
                             && *((void **) (c + 1)) == ev)

    EXPECT(ngx_event_t,
           (&ngx_posted_delayed_events != NULL) == BUILT_FOR_OPENRESTY)

    EXPECT(ngx_event_t, ev->data == c && ev->write && !ev->accept
                        && !ev->instance && ev->index == NGX_INVALID_INDEX
                        && *((void **) (ev + 1) - 1) == NULL
                        && *((void **) (ev + 1)) == (void *) -1)

    return NULL;
}


static const char *
ngx_http_limit_sliding_check_core(ngx_conf_t conf, ngx_http_conf_ctx_t *ctx,
    ngx_log_t *log)
{
    ngx_http_module_t          *core;
    ngx_http_core_srv_conf_t   *cscf;
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_core_main_conf_t  *cmcf;

    core = ngx_http_core_module.ctx;
    cmcf = core->create_main_conf(&conf);
    cscf = core->create_srv_conf(&conf);
    clcf = core->create_loc_conf(&conf);

    EXPECT(ngx_http_core_main_conf_t, cmcf && ENDS_AT(cmcf, cmcf->servers.elts))
    EXPECT(ngx_http_core_srv_conf_t, cscf && ENDS_AT(cscf, clcf))
    EXPECT(ngx_http_core_loc_conf_t, clcf && ENDS_AT(clcf, conf.pool->d.last))

    cmcf->variables.nelts = 1;
    cscf->request_pool_size = NGX_DEFAULT_POOL_SIZE;
    clcf->error_log = log;

    ngx_http_limit_sliding_fill(ctx->main_conf, cmcf);
    ngx_http_limit_sliding_fill(ctx->srv_conf, cscf);
    ngx_http_limit_sliding_fill(ctx->loc_conf, clcf);

    return NULL;
}


static ngx_int_t
ngx_http_limit_sliding_pass_header(ngx_http_request_t *r)
{
    ngx_http_limit_sliding_headers_passed++;
    return NGX_OK;
}


static ngx_int_t
ngx_http_limit_sliding_pass_body(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_limit_sliding_buf_passed = in->buf;
    return NGX_OK;
}


/* A request that NGINX has created, with filters of ours. */

static const char *
ngx_http_limit_sliding_check_created(ngx_http_request_t *r, ngx_connection_t *c,
    ngx_http_conf_ctx_t *ctx)
{
    ngx_buf_t            *b;
    ngx_http_cleanup_t   *cln;
    ngx_http_upstream_t  *u;

    EXPECT(ngx_http_request_t, r->connection == c && ENDS_AT(r->pool, r)
                               && r->loc_conf == ctx->loc_conf)

    EXPECT(ngx_http_headers_in_t, r->headers_in.content_length_n == -1
                                  && r->headers_in.keep_alive_n == -1)

    EXPECT(ngx_table_elt_t,
           r->headers_out.headers.size == sizeof(ngx_table_elt_t))

    EXPECT(ngx_http_headers_out_t, r->headers_out.content_length_n == -1
                                   && r->headers_out.last_modified_time == -1)

    EXPECT(ngx_http_request_t, ENDS_AT(r, r->headers_out.headers.part.elts)
                               && r->main == r && r->variables && r->log_handler
                               && r->method == NGX_HTTP_UNKNOWN && r->count == 1
                               && r->subrequests
                                  == NGX_HTTP_MAX_SUBREQUESTS + 1)

    cln = ngx_http_cleanup_add(r, 0);

    EXPECT(ngx_http_cleanup_t, cln && r->cleanup == cln && !cln->handler
                               && !cln->data && !cln->next)

    /* the header passes once: neither after itself nor in a "post_action" */

    ngx_http_limit_sliding_headers_passed = 0;
    r->post_action = 1;
    (void) ngx_http_send_header(r);
    r->post_action = 0;
    (void) ngx_http_send_header(r);
    r->header_sent = 1;
    (void) ngx_http_send_header(r);

    EXPECT(ngx_http_request_t, ngx_http_limit_sliding_headers_passed == 1)

    (void) ngx_http_send_special(r, NGX_HTTP_LAST);
    b = ngx_http_limit_sliding_buf_passed;

    EXPECT(ngx_buf_t, b && b->last_buf && !b->pos && !b->temporary && !b->memory
                      && !b->mmap && !b->sync && !b->last_in_chain)

    (void) ngx_http_upstream_create(r);
    u = r->upstream;

    EXPECT(ngx_http_upstream_t, u && u->peer.log == c->log
                                && u->headers_in.content_length_n == -1
                                && u->headers_in.last_modified_time == -1)

    return NULL;
}


static const char *
ngx_http_limit_sliding_check_request(ngx_connection_t *c,
    ngx_http_conf_ctx_t *ctx)
{
    const char                        *type;
    ngx_atomic_t                      *reading, *requests, count;
    ngx_http_request_t                *r;
    ngx_http_output_body_filter_pt     body;
    ngx_http_output_header_filter_pt   header;

    reading = requests = NULL;
    count = 0;

    if (&ngx_stat_reading) {
        reading = ngx_stat_reading;
        requests = ngx_stat_requests;
        ngx_stat_reading = ngx_stat_requests = &count;
    }

    header = ngx_http_top_header_filter;
    body = ngx_http_top_body_filter;
    ngx_http_top_header_filter = ngx_http_limit_sliding_pass_header;
    ngx_http_top_body_filter = ngx_http_limit_sliding_pass_body;

    r = ngx_http_create_request(c);
    type = r ? ngx_http_limit_sliding_check_created(r, c, ctx)
             : "ngx_http_request_t";

    if (type == NULL) {
        ngx_destroy_pool(r->pool);
    }

    ngx_http_top_header_filter = header;
    ngx_http_top_body_filter = body;

    if (&ngx_stat_reading) {
        ngx_stat_reading = reading;
        ngx_stat_requests = requests;
    }

    return type;
}


/* Structures that only functions of NGINX fill. */

static const char *
ngx_http_limit_sliding_check_filled(ngx_pool_t *pool, ngx_url_t *u,
    ngx_resolver_t *resolver, ngx_resolver_ctx_t *ctx)
{
    ngx_str_set(&u->url, "127.0.0.1:80");

    EXPECT(ngx_url_t, ngx_parse_url(pool, u) == NGX_OK && u->port == 80
                      && u->naddrs == 1 && u->addrs
                      && u->addrs->name.len == u->url.len)

    ngx_str_set(&ctx->name, "127.0.0.1");

    EXPECT(ngx_resolver_ctx_t, ngx_resolve_start(resolver, ctx) == ctx
                               && ctx->naddrs == 1 && ctx->addrs == &ctx->addr
                               && (void *) ctx->addr.sockaddr == &ctx->sin)

    return NULL;
}


/* Returns the name of a structure that differs, or NULL. */

static const char *
ngx_http_limit_sliding_find_other(ngx_conf_t *cf)
{
    void                 *(*rooms)[WORDS];
    ngx_log_t            *log, *next;
    ngx_conf_t            conf;
    ngx_connection_t     *c;
    ngx_http_conf_ctx_t   ctx;

    /* NGINX reads the directive "http" */

    EXPECT(ngx_conf_t, cf->module_type == NGX_CORE_MODULE
                       && cf->cmd_type == NGX_MAIN_CONF && !cf->handler)

    EXPECT(ngx_conf_file_t, cf->conf_file->file.log == cf->log
                            && cf->conf_file->line > 0)

    conf = *cf;
    conf.pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, cf->log);
    EXPECT(ngx_pool_t, conf.pool)
    CHECK(ngx_http_limit_sliding_check_pool(conf.pool))

    rooms = ngx_pcalloc(conf.pool, ROOMS * sizeof(*rooms));
    EXPECT(ngx_pool_t, rooms)

    /* a log without a file leads to the next one, by its last field */

    log = (void *) rooms[0];
    next = (void *) rooms[1];
    log->next = next;
    next->file = (void *) next;

    EXPECT(ngx_log_t, ngx_log_get_file_log(log) == next)

    log->next = NULL;

    CHECK(ngx_http_limit_sliding_check_cycle(cf->cycle, cf))
    CHECK(ngx_http_limit_sliding_check_tables())

    c = (void *) rooms[2];
    CHECK(ngx_http_limit_sliding_check_connection(c, (void *) rooms[3],
                                                  (void *) rooms[4], log))

    ctx.main_conf = rooms[5];
    ctx.srv_conf = rooms[6];
    ctx.loc_conf = rooms[7];
    CHECK(ngx_http_limit_sliding_check_core(conf, &ctx, log))

    c->data = ngx_http_limit_sliding_fill(rooms[8], &ctx);
    log->data = rooms[9];
    CHECK(ngx_http_limit_sliding_check_request(c, &ctx))

    CHECK(ngx_http_limit_sliding_check_filled(conf.pool, (void *) rooms[10],
                                       (void *) rooms[11], (void *) rooms[12]))

    ngx_destroy_pool(conf.pool);

    return NULL;
}


/* Writes to stderr: the log may not be where the module would look for it. */

static ngx_int_t
ngx_http_limit_sliding_fits(const char *other)
{
    if (other == NULL) {
        return NGX_OK;
    }

    if (ngx_errno == NGX_ENOMEM) {
        ngx_log_stderr(NGX_ENOMEM, "[emerg] limit_sliding cannot compare the"
                       " structures of this NGINX");
        return NGX_ERROR;
    }

    ngx_log_stderr(0, "[emerg] " NGX_HTTP_LIMIT_SLIDING_OTHER, other);

    return NGX_ERROR;
}


ngx_int_t
ngx_http_limit_sliding_check_layout(ngx_conf_t *cf)
{
    static ngx_int_t  rc = NGX_ERROR;

    /* each configuration asks, and the binary stays */

    if (rc != NGX_OK) {
        ngx_set_errno(0);
        rc = ngx_http_limit_sliding_fits(ngx_http_limit_sliding_find_other(cf));
    }

    return rc;
}


static const char *
ngx_http_limit_sliding_find_other_variable(ngx_http_core_main_conf_t *cmcf)
{
    ngx_uint_t            i;
    ngx_hash_key_t       *key;
    ngx_http_variable_t  *v;

    EXPECT(ngx_hash_key_t,
           cmcf->variables_keys->keys.size == sizeof(ngx_hash_key_t))
    EXPECT(ngx_http_variable_t,
           cmcf->prefix_variables.size == sizeof(ngx_http_variable_t))

    key = cmcf->variables_keys->keys.elts;

    for (i = 0; i < cmcf->variables_keys->keys.nelts; i++) {
        v = key[i].value;
        CHECK(ngx_http_limit_sliding_check_field(
                  ngx_http_limit_sliding_variables, &key[i].key, v->data))
    }

    return NULL;
}


ngx_int_t
ngx_http_limit_sliding_check_variables(ngx_conf_t *cf)
{
    ngx_set_errno(0);

    return ngx_http_limit_sliding_fits(
        ngx_http_limit_sliding_find_other_variable(
            ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module)));
}
