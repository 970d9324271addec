/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/reply.hpp"

#include <hiredis/hiredis.h>

#include "ngx/strings.hpp"
#include "redis/logic/remote.hpp"

namespace limit_sliding {

/* Bytes received which make no whole reply yet. */
constexpr size_t kUnfinishedMax = 128 * 1024;

const char *Reply::log_text() const
{
    static char line[sizeof(text) + 1];

    for (size_t i = 0; i < len; i++) {
        line[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
    }

    line[len] = '\0';

    /* Redis repeats the arguments of an unknown command, and AUTH may be one:
     * passwords are not logged */

    if (char *args = strstr(line, ", with args")) {
        *args = '\0';
    }

    return line;
}

/* The functions that hiredis calls while it reads.  Each returns an object, or
 * nullptr if the reply is refused; the reply stands for all of them. */
struct ReaderCallbacks {
    static void *string(const redisReadTask *task, char *data, size_t len);
    static void *integer(const redisReadTask *task, long long value);
    static void *nil(const redisReadTask *task);

    /* The type of the number depends on the version of hiredis. */
    template <class Size>
    static void *array(const redisReadTask *task, Size size);

    static void free(void *) {}

private:
    static Reader &reader(const redisReadTask *task)
    {
        return *static_cast<Reader *>(task->privdata);
    }

    /* 0 for the reply itself. */
    static int depth(const redisReadTask *task)
    {
        int n = 0;

        while ((task = task->parent) != nullptr) {
            n++;
        }

        return n;
    }

    /* A range is [first, last, [host, port, ...], replicas...].  Is this an
     * element of its master? */
    static bool is_of_master(const redisReadTask *task)
    {
        return depth(task) == 3 && task->parent->idx == 2;
    }

    static void *element(Reply &reply, int i, std::string_view text);
};

/* The bytes may move once this returns, so they are copied. */
void *ReaderCallbacks::string(const redisReadTask *task, char *data, size_t len)
{
    Reader &to = reader(task);
    Reply &reply = to.reply;

    if (task->parent == nullptr) {
        reply.type = task->type;
        reply.len = ngx_min(len, sizeof(reply.text));
        ngx_memcpy(reply.text, data, reply.len);
        return &reply;
    }

    if (to.sink_ == nullptr) {
        reply.numbers[task->idx] = 0;
        return element(reply, task->idx, {data, len});
    }

    if (is_of_master(task) && task->idx == 0) {
        return element(reply, 0, {data, len});
    }

    return &reply;
}

/* Strings come in pairs only, as a host and a port. */
void *ReaderCallbacks::element(Reply &reply, int i, std::string_view text)
{
    if (i >= 2 || text.size() > kReplyString) {
        return nullptr;
    }

    ngx_memcpy(reply.string_text[i], text.data(), text.size());
    reply.strings[i] = {reply.string_text[i], text.size()};

    return &reply;
}

template <class Size>
void *ReaderCallbacks::array(const redisReadTask *task, Size size)
{
    Reader &to = reader(task);
    Reply &reply = to.reply;
    size_t max = to.sink_ != nullptr ? kClusterSlots : kReplyNumbers;

    if ((task->parent != nullptr && to.sink_ == nullptr)
        || static_cast<size_t>(size) > max) {
        return nullptr;
    }

    if (task->parent == nullptr) {
        reply.type = task->type;
        reply.n = size;
        reply.strings[0] = reply.strings[1] = {};

    } else if (depth(task) == 1) {
        reply.strings[0] = {};
        reply.numbers[0] = -1;
        reply.numbers[1] = -1;
    }

    return &reply;
}

void *ReaderCallbacks::integer(const redisReadTask *task, long long value)
{
    Reader &to = reader(task);
    Reply &reply = to.reply;

    if (task->parent == nullptr) {
        reply.type = task->type;

    } else if (to.sink_ == nullptr || (depth(task) == 2 && task->idx < 2)) {
        reply.numbers[task->idx] = value;

    } else if (is_of_master(task) && task->idx == 1) {
        to.sink_->add(*to.sink_, {reply.numbers[0], reply.numbers[1],
                                  reply.strings[0], value});
    }

    return &reply;
}

/* Only the map of slots may have a nil in it, which is a host that the node does
 * not know. */
void *ReaderCallbacks::nil(const redisReadTask *task)
{
    Reader &to = reader(task);

    if (task->parent != nullptr) {
        return to.sink_ != nullptr ? &to.reply : nullptr;
    }

    /* the type of the task is that of the missing object */

    to.reply.type = REDIS_REPLY_NIL;

    return &to.reply;
}

void Reader::Free::operator()(redisReader *reader) const
{
    redisReaderFree(reader);
}

bool Reader::start()
{
    /* hiredis 1 has more, which are not of the protocol that we speak */

    static redisReplyObjectFunctions functions = [] {
        redisReplyObjectFunctions made = {};

        made.createString = ReaderCallbacks::string;
        made.createArray = ReaderCallbacks::array;
        made.createInteger = ReaderCallbacks::integer;
        made.createNil = ReaderCallbacks::nil;
        made.freeObject = ReaderCallbacks::free;

        return made;
    }();

    reader_.reset(redisReaderCreateWithFunctions(&functions));

    if (!reader_) {
        return false;
    }

    reader_->privdata = this;

    return true;
}

bool Reader::feed(u_char *data, size_t len)
{
    return redisReaderFeed(reader_.get(), reinterpret_cast<char *>(data), len)
           == REDIS_OK;
}

ngx_int_t Reader::next(SlotRangeSink *sink)
{
    void *object = nullptr;

    sink_ = sink;

    if (redisReaderGetReply(reader_.get(), &object) != REDIS_OK) {
        return NGX_ERROR;
    }

    if (object != nullptr) {
        return NGX_OK;
    }

    return reader_->len - reader_->pos > kUnfinishedMax ? NGX_ERROR : NGX_AGAIN;
}

} // namespace limit_sliding
