/* Copyright (C) the limit_sliding authors */

#include "redis/wire/reply.hpp"

#include <hiredis/hiredis.h>

#include "ngx/strings.hpp"
#include "redis/protocol/key_slot.hpp"

namespace limit_sliding {

namespace {

#if (HIREDIS_MAJOR >= 1)
using Elements = size_t;
#else
using Elements = int;
#endif

/* The most received bytes without a complete reply. */
constexpr size_t kUnfinishedMax = 128 * 1024;

Reader &reader_of(const redisReadTask *task) { return *static_cast<Reader *>(task->privdata); }

/* Returns the depth of nesting, 0 for the reply itself. */
int depth(const redisReadTask *task) {
    return task->parent != nullptr ? 1 + depth(task->parent) : 0;
}

/* Returns true for element i of a master in the map of slots,
 * [[first, last, [host, port, ...], replicas...], ...]. */
bool is_of_master(const redisReadTask *task, int i) {
    return depth(task) == 3 && task->parent->idx == 2 && task->idx == i;
}

/* hiredis calls the functions below for each object of a reply.  They return the reply, or
 * nullptr to refuse it. */

/* Copies the bytes, which may move later, except for the keys in [cursor, [key, ...]] and the
 * ignored rest of a reply to ROLE.  Of the map of slots, the copy is the host of the range. */
void *create_string(const redisReadTask *task, char *data, size_t len) {
    auto &[reply, sink, texts, reader] = reader_of(task);
    if (task->parent == nullptr) {
        if (texts != nullptr && task->type == REDIS_REPLY_STRING) {
            texts->add_text(*texts, {data, len});
        }

        reply.type = task->type;
        reply.len = ngx_min(len, sizeof(reply.text));
        ngx_memcpy(reply.text, data, reply.len);
        return &reply;
    }

    if (texts != nullptr && depth(task) == 2) {
        texts->add_text(*texts, {data, len});
        return &reply;
    }

    const bool is_rest = texts != nullptr && (depth(task) > 2 || task->idx >= 2);
    if (is_rest || (sink != nullptr && !is_of_master(task, 0))) { return &reply; }

    if (len >= kReplyBytes - reply.nbytes || (sink != nullptr && len > kReplyHost)) {
        return nullptr;
    }

    const size_t place = reply.nbytes * kReplyBytes + len;
    reply.numbers[sink != nullptr ? 2 : task->idx] = kReplyNil + 1 + static_cast<int64_t>(place);
    ngx_memcpy(reply.bytes + reply.nbytes, data, len);
    reply.nbytes += len;
    return &reply;
}

void *create_array(const redisReadTask *task, Elements elements) {
    auto &[reply, sink, texts, reader] = reader_of(task);
    const size_t most = sink != nullptr ? kClusterSlots : kReplyNumbers;
    const bool may_nest = task->parent == nullptr || sink != nullptr || texts != nullptr;
    if (!may_nest || static_cast<size_t>(elements) > most) { return nullptr; }

    if (task->parent == nullptr) {
        reply.type = task->type;
        reply.n = elements;
        reply.nbytes = 0;
    } else if (sink != nullptr && depth(task) == 1) {
        reply.nbytes = 0;
        reply.numbers[0] = reply.numbers[1] = -1;
        reply.numbers[2] = kReplyNil;
    }
    return &reply;
}

void *create_integer(const redisReadTask *task, long long value) {
    auto &[reply, sink, texts, reader] = reader_of(task);
    if (value < kReplyNumberMin) { return nullptr; }

    if (task->parent == nullptr) {
        reply.type = task->type;
        reply.numbers[0] = value;
    } else if (sink == nullptr || (depth(task) == 2 && task->idx < 2)) {
        reply.numbers[task->idx] = value;
    } else if (is_of_master(task, 1)) {
        sink->add(*sink, {reply.numbers[0], reply.numbers[1], reply.string_at(2), value});
    }
    return &reply;
}

/* In the map of slots, nil is an unknown host. */
void *create_nil(const redisReadTask *task) {
    auto &[reply, sink, texts, reader] = reader_of(task);
    if (task->parent == nullptr) {
        /* task->type is the type of the missing object */
        reply.type = REDIS_REPLY_NIL;
    } else if (texts != nullptr) {
        return nullptr;
    } else if (sink == nullptr) {
        reply.numbers[task->idx] = kReplyNil;
    }
    return &reply;
}

} // namespace

/* Omits the arguments of an unknown command, which Redis repeats: if the command is AUTH, they
 * are passwords. */
const char *reply_text(const Reply *reply) {
    static char line[sizeof(reply->text) + 1];
    for (size_t i = 0; i < reply->len; i++) {
        u_char c = reply->text[i];
        line[i] = c < ' ' || c > '~' ? '?' : c;
    }

    line[reply->len] = '\0';
    if (char *args = strstr(line, ", with args")) { *args = '\0'; }
    return line;
}

/* The text ends with its first line, and before an AUTH: a server that is no Redis may repeat what
 * it was sent. */
const char *reply_beginning(const char *wrong, std::string_view text) {
    constexpr size_t kShown = 32;
    static u_char line[64 + 4 * kShown];
    text = first(first(text, kShown), ngx_min(text.find_first_of("\r\n"), text.find("AUTH")));
    u_char *p = ngx_snprintf(line, 64, text.empty() ? "%s" : "%s: \"", wrong);
    for (u_char c : text) {
        const bool is_shown = c >= ' ' && c <= '~' && c != '"' && c != '\\';
        p = ngx_sprintf(p, is_shown ? "%c" : "\\x%02xd", c);
    }

    *append(p, text.empty() ? "" : "\"") = '\0';
    return reinterpret_cast<const char *>(line);
}

void Reader::Free::operator()(redisReader *freed) const { redisReaderFree(freed); }

/* hiredis 1 has more functions, for types of RESP3, which the module does not use. */
bool Reader::start() {
    static redisReplyObjectFunctions functions = {};
    functions.createString = create_string;
    functions.createArray = create_array;
    functions.createInteger = create_integer;
    functions.createNil = create_nil;
    functions.freeObject = [](void *) {};
    reader.reset(redisReaderCreateWithFunctions(&functions));
    if (reader) { reader->privdata = this; }
    return reader != nullptr;
}

bool Reader::feed(u_char *data, size_t len) {
    return redisReaderFeed(reader.get(), reinterpret_cast<char *>(data), len) == REDIS_OK;
}

ngx_int_t Reader::next(SlotRangeSink *to, TextSink *texts_to) {
    void *object = nullptr;
    const size_t unread = reader->len - reader->pos;
    sink = to;
    texts = texts_to;
    reply.received = reader->ridx < 0 ? unread : 0;
    if (unread != 0 && redisReaderGetReply(reader.get(), &object) != REDIS_OK) { return NGX_ERROR; }

    if (object != nullptr) { return NGX_OK; }

    const size_t left = reader->len - reader->pos;
    if (left > kUnfinishedMax) { return NGX_ERROR; }

    /* the elements of an array leave the buffer one by one */
    const bool has_begun = reader->ridx > 0 || (left != 0 && reader->buf[reader->pos] != '-');
    return has_begun ? NGX_AGAIN : NGX_DECLINED;
}

} // namespace limit_sliding
