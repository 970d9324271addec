/* Copyright (C) the limit_sliding authors */

/* Replies of Redis, and the reader that parses them from the received bytes. */

#pragma once

#include <memory>
#include <string_view>

#include "ngx/ngx.hpp"

struct redisReader;

namespace limit_sliding {

/* The longest string in an array, in bytes, such as a host name. */
constexpr size_t kReplyString = 256;

/* The most numbers in a reply. */
constexpr size_t kReplyNumbers = 4096;

struct Reply {
    int type;                       /* REDIS_REPLY_* */
    size_t n;                       /* elements, if the reply is an array */
    int64_t numbers[kReplyNumbers]; /* numbers of an array, or the number in numbers[0] */
    std::string_view strings[2];    /* the first strings of an array, in `string_text` */
    size_t len;                     /* bytes of `text` */
    u_char text[256];
    char string_text[2][kReplyString];
};

/* Returns the text of an error as a line for the log, valid until the next call. */
const char *reply_text(const Reply *reply);

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
     * NGX_ERROR: the reply is invalid or too large.  The sinks are nullptr unless the reply
     * belongs to their command. */
    ngx_int_t next(SlotRangeSink *to, TextSink *texts_to);

    /* Returns true if an incomplete reply other than an error has arrived.  Errors are read to
     * their end, to be logged. */
    bool has_begun() const;

    struct Free {
        void operator()(redisReader *freed) const;
    };

    Reply reply;
    SlotRangeSink *sink;
    TextSink *texts;
    std::unique_ptr<redisReader, Free> reader;
};

} // namespace limit_sliding
