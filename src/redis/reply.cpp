
/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Replies, as hiredis's reader finds them: nothing is allocated for one, and
 * none may be larger than any that was asked for.
 */

#include "ngx/ngx.hpp"
#include "redis/cluster.hpp"
#include "redis/tls.hpp"

#include <hiredis/hiredis.h>

namespace limit_sliding {

#if (HIREDIS_MAJOR >= 1)
typedef size_t Elements;
#else
typedef int Elements;
#endif

/* Of bytes received which make no whole reply yet. */

constexpr auto kUnfinished = (128 * 1024);

static void *create_string(const redisReadTask *task, char *str, size_t len);
static void *create_element(Reply *reply, int i, char *str, size_t len);
static void *create_array(const redisReadTask *task, Elements elements);
static void *create_integer(const redisReadTask *task, long long value);
static void *create_nil(const redisReadTask *task);
static void create_range(const redisReadTask *task, int64_t value);
static void *create_host(const redisReadTask *task, char *str, size_t len);
static ngx_uint_t depth_of(const redisReadTask *task);
static void free_object(void *object);

/* What else hiredis 1 has is not of the protocol that we speak. */

static redisReplyObjectFunctions reply_functions
    = {.createString = create_string,
       .createArray = create_array,
       .createInteger = create_integer,
       .createNil = create_nil,
       .freeObject = free_object};

void *reader_create(Reply *reply)
{
    redisReader *reader;

    reader = redisReaderCreateWithFunctions(&reply_functions);
    if (reader == NULL) {
        return NULL;
    }

    reader->privdata = reply;

    return reader;
}

void reader_free(void *reader)
{
    redisReaderFree(reader);
}

ngx_int_t reader_feed(void *reader, u_char *data, size_t len)
{
    return redisReaderFeed(reader, (char *)data, len) == REDIS_OK ? NGX_OK
                                                                  : NGX_ERROR;
}

/* NGX_OK: the reply is in what the reader was created with; NGX_AGAIN: there
 * is no whole one. */

ngx_int_t reader_next(void *data)
{
    redisReader *reader = data;

    void *object;

    object = NULL;

    if (redisReaderGetReply(reader, &object) != REDIS_OK) {
        return NGX_ERROR;
    }

    if (object) {
        return NGX_OK;
    }

    if (reader->len - reader->pos > kUnfinished) {
        return NGX_ERROR;
    }

    return NGX_AGAIN;
}

/*
 * An error as a line to be logged; valid until the next one.  Of a command that
 * it does not know Redis repeats what it was called with: of AUTH, a password.
 */

char *reply_text(Reply *reply)
{
    char *args;
    size_t i;

    static char text[sizeof(reply->text) + 1];

    for (i = 0; i < reply->len; i++) {
        text[i] = (reply->text[i] < ' ' || reply->text[i] > '~')
                      ? '?'
                      : reply->text[i];
    }

    text[i] = '\0';

    args = ngx_strstr(text, ", with args");

    if (args) {
        *args = '\0';
    }

    return text;
}

/* The bytes are the reader's, and may have moved when it returns. */

static void *create_string(const redisReadTask *task, char *str, size_t len)
{
    Reply *reply = task->privdata;

    if (reply->map && task->parent) {
        return create_host(task, str, len);
    }

    if (task->parent) {
        return create_element(reply, task->idx, str, len);
    }

    reply->type = task->type;
    reply->len = ngx_min(len, sizeof(reply->text));

    ngx_memcpy(reply->text, str, reply->len);

    return reply;
}

/* Strings come in pairs only, as a host and a port. */

static void *create_element(Reply *reply, int i, char *str, size_t len)
{
    ngx_str_t *string;

    if (i >= 2 || len > kReplyString) {
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

static void *create_array(const redisReadTask *task, Elements elements)
{
    Reply *reply = task->privdata;

    if (reply->map && task->parent) {

        if (depth_of(task) == 1) {
            reply->strings[0].len = 0;
            reply->numbers[0] = -1;
            reply->numbers[1] = -1;
        }

        return elements > kClusterSlots ? NULL : reply;
    }

    if (task->parent
        || elements > (reply->map ? kClusterSlots : kReplyNumbers)) {
        return NULL;
    }

    reply->strings[0].len = 0;
    reply->strings[1].len = 0;

    reply->type = task->type;
    reply->n = elements;

    return reply;
}

static void *create_integer(const redisReadTask *task, long long value)
{
    Reply *reply = task->privdata;

    if (reply->map && task->parent) {
        create_range(task, value);

    } else if (task->parent) {
        reply->numbers[task->idx] = value;

    } else {
        reply->type = task->type;
    }

    return reply;
}

static void *create_nil(const redisReadTask *task)
{
    Reply *reply = task->privdata;

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

static void create_range(const redisReadTask *task, int64_t value)
{
    ngx_uint_t depth;
    Reply *reply = task->privdata;

    depth = depth_of(task);

    if (depth == 2 && task->idx < 2) {
        reply->numbers[task->idx] = value;
        return;
    }

    if (depth == 3 && task->parent->idx == 2 && task->idx == 1) {
        map_add(reply->map, reply->numbers[0], reply->numbers[1],
                &reply->strings[0], value);
    }
}

static void *create_host(const redisReadTask *task, char *str, size_t len)
{
    Reply *reply = task->privdata;

    if (depth_of(task) == 3 && task->parent->idx == 2 && task->idx == 0) {
        return create_element(reply, 0, str, len);
    }

    return reply;
}

/* 0 for the reply itself. */

static ngx_uint_t depth_of(const redisReadTask *task)
{
    ngx_uint_t depth;

    for (depth = 0; task->parent; depth++) {
        task = task->parent;
    }

    return depth;
}

static void free_object(void *object)
{
    return;
}

} // namespace limit_sliding
