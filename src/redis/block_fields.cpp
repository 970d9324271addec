
/*
 * Copyright (C) the limit_sliding authors
 */

/* The parameters of a limit_sliding_redis block. */

#include "redis/block_fields.hpp"
#include "ngx/ngx.hpp"
#include "redis/password_file.hpp"

namespace limit_sliding {

typedef char *(*FieldSetter)(ngx_conf_t *cf, ngx_str_t *value, void *field);

struct Field {
    ngx_str_t name;
    FieldSetter set;
    size_t offset;
};

static char *set_server(ngx_conf_t *cf, ngx_str_t *value, void *field);
static char *set_str(ngx_conf_t *cf, ngx_str_t *value, void *field);
static char *set_number(ngx_conf_t *cf, ngx_str_t *value, void *field);
static char *set_msec(ngx_conf_t *cf, ngx_str_t *value, void *field);
static void warn_msec(ngx_conf_t *cf, ngx_str_t *value, ngx_int_t ms);
static char *set_flag(ngx_conf_t *cf, ngx_str_t *value, void *field);
static char *set_word(ngx_conf_t *cf, ngx_str_t *value, ngx_str_t *words,
                      void *field);
static char *set_on_error(ngx_conf_t *cf, ngx_str_t *value, void *field);
static char *set_key_format(ngx_conf_t *cf, ngx_str_t *value, void *field);
static char *set_topology(ngx_conf_t *cf, ngx_str_t *value, void *field);
static char *invalid_field(ngx_conf_t *cf, ngx_str_t *value,
                           const char *expected);

#define FIELD(name, type)                                                      \
    {                                                                          \
        ngx_string(#name), set_##type, offsetof(Settings, name)                \
    }

static Field fields[] = {
    {ngx_string("server"), set_server, offsetof(Settings, servers)},
    FIELD(topology, topology),
    {ngx_string("sentinel_master"), set_str,
     offsetof(Settings, sentinel.master)},
    {ngx_string("sentinel_user"), set_str,
     offsetof(Settings, sentinel.credentials.user)},
    {ngx_string("sentinel_password"), set_str,
     offsetof(Settings, sentinel.credentials.password)},
    {ngx_string("sentinel_password_file"), set_password_file,
     offsetof(Settings, sentinel.credentials.password)},
    {ngx_string("user"), set_str, offsetof(Settings, credentials.user)},
    {ngx_string("password"), set_str, offsetof(Settings, credentials.password)},
    {ngx_string("password_file"), set_password_file,
     offsetof(Settings, credentials.password)},
    FIELD(database, number),
    {ngx_string("ssl"), set_flag, offsetof(Settings, tls.on)},
    {ngx_string("ssl_name"), set_str, offsetof(Settings, tls.name)},
    {ngx_string("ssl_trusted_certificate"), set_str,
     offsetof(Settings, tls.trusted_certificate)},
    {ngx_string("ssl_certificate"), set_str,
     offsetof(Settings, tls.certificate)},
    {ngx_string("ssl_certificate_key"), set_str,
     offsetof(Settings, tls.certificate_key)},
    {ngx_string("ssl_verify"), set_flag, offsetof(Settings, tls.verify)},
    FIELD(connect_timeout, msec),
    FIELD(timeout, msec),
    FIELD(on_error, on_error),
    FIELD(key_prefix, str),
    {ngx_string("key_format"), set_key_format, offsetof(Settings, key_format)},
    {ngx_null_string, NULL, 0}};

ngx_str_t topology_words[] = {ngx_string("standalone"), ngx_string("sentinel"),
                              ngx_string("cluster"), ngx_null_string};

ngx_str_t on_error_words[] = {ngx_string("local"), ngx_string("allow"),
                              ngx_string("deny"), ngx_null_string};

char *redis_field(ngx_conf_t *cf, ngx_command_t *dummy, void *conf)
{
    Settings *settings = conf;

    ngx_str_t *value;
    Field *field;

    value = cf->args->elts;

    if (ngx_strcmp(value[0].data, "include") == 0 && cf->args->nelts == 2) {
        return ngx_conf_include(cf, dummy, conf);
    }

    for (field = fields; field->name.len; field++) {

        if (field->name.len != value[0].len
            || ngx_strncmp(field->name.data, value[0].data, value[0].len)
                   != 0) {
            continue;
        }

        if (cf->args->nelts != 2) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" must have one value", &value[0]);
            return NGX_CONF_ERROR;
        }

        return field->set(cf, value, (char *)settings + field->offset);
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown parameter \"%V\" in limit_sliding_redis "
                       "\"%V\"",
                       &value[0], &settings->name);
    return NGX_CONF_ERROR;
}

/* Looked up once it is known whether there is a resolver. */

static char *set_server(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_array_t *servers = field;

    ngx_url_t u;
    Server *server;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = value[1];
    u.default_port = 6379;
    u.no_resolve = 1;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid server \"%V\"%s%s",
                           &value[1], u.err ? ": " : "", u.err ? u.err : "");
        return NGX_CONF_ERROR;
    }

    server = ngx_array_push(servers);
    if (server == NULL) {
        return NGX_CONF_ERROR;
    }

    server->text = value[1];
    server->url = u;
    server->file = cf->conf_file->file.name.data;
    server->line = cf->conf_file->line;

    return NGX_CONF_OK;
}

static char *set_str(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_str_t *str = field;

    if (str->data) {
        return duplicate(cf, value);
    }

    *str = value[1];

    return NGX_CONF_OK;
}

static char *set_number(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_uint_t *number = field;

    ngx_int_t n;

    if (*number != NGX_CONF_UNSET_UINT) {
        return duplicate(cf, value);
    }

    n = ngx_atoi(value[1].data, value[1].len);

    if (n == NGX_ERROR || n > NGX_MAX_INT32_VALUE) {
        return invalid_field(cf, value, "a number");
    }

    *number = n;

    return NGX_CONF_OK;
}

static char *set_msec(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_msec_t *msec = field;

    ngx_int_t ms;

    if (*msec != NGX_CONF_UNSET_MSEC) {
        return duplicate(cf, value);
    }

    ms = ngx_parse_time(&value[1], 0);

    if (ms == (ngx_int_t)NGX_ERROR || ms < 1 || ms > 60000) {
        return invalid_field(cf, value, "a time between 1ms and 60s");
    }

    if (ms > 1000) {
        warn_msec(cf, value, ms);
    }

    *msec = ms;

    return NGX_CONF_OK;
}

/* A time without a unit is one of seconds, which is seldom meant here: requests
 * wait for Redis. */

static void warn_msec(ngx_conf_t *cf, ngx_str_t *value, ngx_int_t ms)
{
    if (ngx_atoi(value[1].data, value[1].len) != NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V %V\" is %i seconds, did you mean \"%Vms\"?",
                           &value[0], &value[1], ms / 1000, &value[1]);
        return;
    }

    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "\"%V %V\" is %i milliseconds, "
                       "which is long to wait for Redis",
                       &value[0], &value[1], ms);
}

static char *set_flag(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_flag_t *flag = field;

    ngx_uint_t word;

    static ngx_str_t words[]
        = {ngx_string("off"), ngx_string("on"), ngx_null_string};

    word = (*flag == NGX_CONF_UNSET) ? NGX_CONF_UNSET_UINT : 0;

    if (set_word(cf, value, words, &word) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    *flag = word;

    return NGX_CONF_OK;
}

/* *field becomes the number of the word. */

static char *set_word(ngx_conf_t *cf, ngx_str_t *value, ngx_str_t *words,
                      void *to)
{
    auto *field = static_cast<ngx_uint_t *>(to);

    u_char text[NGX_MAX_CONF_ERRSTR], *p, *last;
    ngx_uint_t i;

    if (*field != NGX_CONF_UNSET_UINT) {
        return duplicate(cf, value);
    }

    p = text;
    last = text + sizeof(text) - 1;

    for (i = 0; words[i].len; i++) {

        if (words[i].len == value[1].len
            && ngx_strncmp(words[i].data, value[1].data, value[1].len) == 0) {
            *field = i;
            return NGX_CONF_OK;
        }

        p = ngx_slprintf(p, last, "%s\"%V\"",
                         i == 0             ? ""
                         : words[i + 1].len ? ", "
                                            : " or ",
                         &words[i]);
    }

    *p = '\0';

    return invalid_field(cf, value, (char *)text);
}

static char *set_topology(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    return set_word(cf, value, topology_words, field);
}

static char *set_on_error(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    return set_word(cf, value, on_error_words, field);
}

static char *set_key_format(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    /* by KeyFormat */

    static ngx_str_t words[]
        = {ngx_string("digest"), ngx_string("plain"), ngx_null_string};

    return set_word(cf, value, words, field);
}

char *duplicate(ngx_conf_t *cf, ngx_str_t *value)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "duplicate parameter \"%V\"",
                       &value[0]);
    return NGX_CONF_ERROR;
}

static char *invalid_field(ngx_conf_t *cf, ngx_str_t *value,
                           const char *expected)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" of \"%V\", it must be %s",
                       &value[1], &value[0], expected);
    return NGX_CONF_ERROR;
}

} // namespace limit_sliding
