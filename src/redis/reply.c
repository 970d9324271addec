
/*
 * Copyright (C) the limit_sliding authors
 */


/*
 * Replies, as hiredis's reader finds them: nothing is allocated for one, and
 * none may be larger than any that was asked for.
 */


#include "redis/cluster.h"

#include <hiredis/hiredis.h>


#if (HIREDIS_MAJOR >= 1)
typedef size_t  ngx_http_limit_sliding_elements_t;
#else
typedef int     ngx_http_limit_sliding_elements_t;
#endif


/* Of bytes received which make no whole reply yet. */

#define NGX_HTTP_LIMIT_SLIDING_UNFINISHED  (128 * 1024)


static void *ngx_http_limit_sliding_create_string(const redisReadTask *task,
    char *str, size_t len);
static void *ngx_http_limit_sliding_create_element(
    ngx_http_limit_sliding_reply_t *reply, int i, char *str, size_t len);
static void *ngx_http_limit_sliding_create_array(const redisReadTask *task,
    ngx_http_limit_sliding_elements_t elements);
static void *ngx_http_limit_sliding_create_integer(const redisReadTask *task,
    long long value);
static void *ngx_http_limit_sliding_create_nil(const redisReadTask *task);
static void ngx_http_limit_sliding_create_range(const redisReadTask *task,
    int64_t value);
static void *ngx_http_limit_sliding_create_host(const redisReadTask *task,
    char *str, size_t len);
static ngx_uint_t ngx_http_limit_sliding_depth(const redisReadTask *task);
static void ngx_http_limit_sliding_free_object(void *object);


/* What else hiredis 1 has is not of the protocol that we speak. */

static redisReplyObjectFunctions  ngx_http_limit_sliding_reply_functions = {
    .createString = ngx_http_limit_sliding_create_string,
    .createArray = ngx_http_limit_sliding_create_array,
    .createInteger = ngx_http_limit_sliding_create_integer,
    .createNil = ngx_http_limit_sliding_create_nil,
    .freeObject = ngx_http_limit_sliding_free_object
};


void *
ngx_http_limit_sliding_reader_create(ngx_http_limit_sliding_reply_t *reply)
{
    redisReader  *reader;

    reader = redisReaderCreateWithFunctions(
                                      &ngx_http_limit_sliding_reply_functions);
    if (reader == NULL) {
        return NULL;
    }

    reader->privdata = reply;

    return reader;
}


void
ngx_http_limit_sliding_reader_free(void *reader)
{
    redisReaderFree(reader);
}


ngx_int_t
ngx_http_limit_sliding_reader_feed(void *reader, u_char *data, size_t len)
{
    return redisReaderFeed(reader, (char *) data, len) == REDIS_OK ? NGX_OK
                                                                   : NGX_ERROR;
}


/* NGX_OK: the reply is in what the reader was created with; NGX_AGAIN: there
 * is no whole one. */

ngx_int_t
ngx_http_limit_sliding_reader_next(void *data)
{
    redisReader  *reader = data;

    void  *object;

    object = NULL;

    if (redisReaderGetReply(reader, &object) != REDIS_OK) {
        return NGX_ERROR;
    }

    if (object) {
        return NGX_OK;
    }

    if (reader->len - reader->pos > NGX_HTTP_LIMIT_SLIDING_UNFINISHED) {
        return NGX_ERROR;
    }

    return NGX_AGAIN;
}


/*
 * An error as a line to be logged; valid until the next one.  Of a command that
 * it does not know Redis repeats what it was called with: of AUTH, a password.
 */

char *
ngx_http_limit_sliding_reply_text(ngx_http_limit_sliding_reply_t *reply)
{
    char    *args;
    size_t   i;

    static char  text[sizeof(reply->text) + 1];

    for (i = 0; i < reply->len; i++) {
        text[i] = (reply->text[i] < ' ' || reply->text[i] > '~')
                  ? '?' : reply->text[i];
    }

    text[i] = '\0';

    args = ngx_strstr(text, ", with args");

    if (args) {
        *args = '\0';
    }

    return text;
}


/* The bytes are the reader's, and may have moved when it returns. */

static void *
ngx_http_limit_sliding_create_string(const redisReadTask *task, char *str,
    size_t len)
{
    ngx_http_limit_sliding_reply_t  *reply = task->privdata;

    if (reply->map && task->parent) {
        return ngx_http_limit_sliding_create_host(task, str, len);
    }

    if (task->parent) {
        return ngx_http_limit_sliding_create_element(reply, task->idx, str,
                                                     len);
    }

    reply->type = task->type;
    reply->len = ngx_min(len, sizeof(reply->text));

    ngx_memcpy(reply->text, str, reply->len);

    return reply;
}


/* Strings come in pairs only, as a host and a port. */

static void *
ngx_http_limit_sliding_create_element(ngx_http_limit_sliding_reply_t *reply,
    int i, char *str, size_t len)
{
    ngx_str_t  *string;

    if (i >= 2 || len > NGX_HTTP_LIMIT_SLIDING_STRING) {
        return NULL;
    }

    string = &reply->strings[i];

    string->data = reply->string_text[i];
    string->len = len;

    ngx_memcpy(string->data, str, len);

    if (reply->map == NULL) {
        reply->numbers[i] = 0;
    }

    return reply;
}


static void *
ngx_http_limit_sliding_create_array(const redisReadTask *task,
    ngx_http_limit_sliding_elements_t elements)
{
    ngx_http_limit_sliding_reply_t  *reply = task->privdata;

    if (reply->map && task->parent) {

        if (ngx_http_limit_sliding_depth(task) == 1) {
            reply->strings[0].len = 0;
            reply->numbers[0] = -1;
            reply->numbers[1] = -1;
        }

        return elements > LIMIT_SLIDING_CLUSTER_SLOTS ? NULL : reply;
    }

    if (task->parent
        || elements > (reply->map ? LIMIT_SLIDING_CLUSTER_SLOTS
                                  : NGX_HTTP_LIMIT_SLIDING_NUMBERS))
    {
        return NULL;
    }

    reply->strings[0].len = 0;
    reply->strings[1].len = 0;

    reply->type = task->type;
    reply->n = elements;

    return reply;
}


static void *
ngx_http_limit_sliding_create_integer(const redisReadTask *task,
    long long value)
{
    ngx_http_limit_sliding_reply_t  *reply = task->privdata;

    if (reply->map && task->parent) {
        ngx_http_limit_sliding_create_range(task, value);

    } else if (task->parent) {
        reply->numbers[task->idx] = value;

    } else {
        reply->type = task->type;
    }

    return reply;
}


static void *
ngx_http_limit_sliding_create_nil(const redisReadTask *task)
{
    ngx_http_limit_sliding_reply_t  *reply = task->privdata;

    if (task->parent) {
        return reply->map ? reply : NULL;
    }

    /* the task's is that of what is missing */

    reply->type = REDIS_REPLY_NIL;

    return reply;
}


/*
 * Of CLUSTER SLOTS: [[first, last, [host, port, ...], replicas...], ...].  A
 * range is told as soon as its master's port is there, so that nothing of the
 * reply is kept; a host that is not known is nil.
 */

static void
ngx_http_limit_sliding_create_range(const redisReadTask *task, int64_t value)
{
    ngx_uint_t                       depth;
    ngx_http_limit_sliding_reply_t  *reply = task->privdata;

    depth = ngx_http_limit_sliding_depth(task);

    if (depth == 2 && task->idx < 2) {
        reply->numbers[task->idx] = value;
        return;
    }

    if (depth == 3 && task->parent->idx == 2 && task->idx == 1) {
        ngx_http_limit_sliding_map_add(reply->map, reply->numbers[0],
                                       reply->numbers[1], &reply->strings[0],
                                       value);
    }
}


static void *
ngx_http_limit_sliding_create_host(const redisReadTask *task, char *str,
    size_t len)
{
    ngx_http_limit_sliding_reply_t  *reply = task->privdata;

    if (ngx_http_limit_sliding_depth(task) == 3
        && task->parent->idx == 2 && task->idx == 0)
    {
        return ngx_http_limit_sliding_create_element(reply, 0, str, len);
    }

    return reply;
}


/* 0 for the reply itself. */

static ngx_uint_t
ngx_http_limit_sliding_depth(const redisReadTask *task)
{
    ngx_uint_t  depth;

    for (depth = 0; task->parent; depth++) {
        task = task->parent;
    }

    return depth;
}


static void
ngx_http_limit_sliding_free_object(void *object)
{
    return;
}
