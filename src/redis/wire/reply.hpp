/* Copyright (C) the limit_sliding authors */

/* Replies of Redis, and the reader that parses them from the received bytes. */

#pragma once

#include <memory>
#include <string_view>

#include "ngx/ngx.hpp"

struct redisReader;

namespace limit_sliding {

/* The longest host name, in bytes. */
constexpr size_t kReplyHost = 256;

/* The most elements of an array, and the most bytes of all of its strings. */
constexpr size_t kReplyNumbers = 4096;
constexpr size_t kReplyBytes = 16384;

/* Elements of an array that are no numbers are less than all numbers: nil, and strings. */
constexpr int64_t kReplyNil = INT64_MIN;
constexpr int64_t kReplyNumberMin = INT64_MIN / 2;

struct Reply {
    /* Returns true if this element of an array is a number. */
    bool is_number(size_t i) const { return numbers[i] >= kReplyNumberMin; }

    /* Returns this element of an array if it is a string, else an empty string. */
    std::string_view string(size_t i) const { return i < n ? string_at(i) : std::string_view{}; }

    std::string_view string_at(size_t i) const {
        if (is_number(i) || numbers[i] == kReplyNil) { return {}; }

        const auto place = static_cast<size_t>(numbers[i] - kReplyNil - 1);
        return {bytes + place / kReplyBytes, place % kReplyBytes};
    }

    int type;                       /* REDIS_REPLY_* */
    size_t n;                       /* elements, if the reply is an array */
    int64_t numbers[kReplyNumbers]; /* elements of an array, or the number in numbers[0] */
    size_t received; /* bytes from its beginning on when it was parsed; 0: parsed in parts */
    size_t len;      /* bytes of `text` */
    u_char text[256];
    size_t nbytes; /* used bytes of `bytes`, the strings of an array */
    char bytes[kReplyBytes];
};

/* Returns the text of an error as a line for the log, valid until the next call. */
const char *reply_text(const Reply *reply);

/* Returns what is wrong with a reply, and the beginning of its text, escaped, which shows what kind
 * of server has sent it.  The line is valid until the next call. */
const char *reply_beginning(const char *wrong, std::string_view text);

/* A range of slots of a cluster, and the address of its master. */
struct SlotRange {
    int64_t first;
    int64_t last;
    std::string_view host; /* empty or "?": the host of the node that replied */
    int64_t port;
};

/* Takes the ranges of a reply to CLUSTER SLOTS one by one, because the whole reply would need
 * much memory.  Types with more state derive from it. */
struct SlotRangeSink {
    void (*add)(SlotRangeSink &sink, const SlotRange &range);
};

/* Takes the keys of a reply to SCAN one by one, or the text of a reply that is too long for
 * Reply::text.  Types with more state derive from it. */
struct TextSink {
    void (*add_text)(TextSink &sink, std::string_view text);
};

/* Parses replies from a stream of bytes.  It allocates nothing for a reply, and refuses replies
 * that are larger than any expected one. */
struct Reader {
    /* Begins a new stream.  Returns false if there is no memory. */
    bool start();
    void stop() { reader.reset(); }

    /* Adds received bytes.  Returns false if there is no memory. */
    bool feed(u_char *data, size_t len);

    /* Parses the next reply into `reply`.  NGX_OK: done; NGX_AGAIN: the reply is incomplete;
     * NGX_DECLINED: none has begun, or an error, which is read to its end, to be logged;
     * NGX_ERROR: the reply is invalid or too large.  The sinks are nullptr unless the reply
     * belongs to their command. */
    ngx_int_t next(SlotRangeSink *to, TextSink *texts_to);

    struct Free {
        void operator()(redisReader *freed) const;
    };

    Reply reply;
    SlotRangeSink *sink;
    TextSink *texts;
    std::unique_ptr<redisReader, Free> reader;
};

} // namespace limit_sliding
