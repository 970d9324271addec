/* Copyright (C) the limit_sliding authors */

/* Replies of Redis, and the reader that finds them in the received bytes. */

#pragma once

#include <memory>
#include <string_view>

#include "ngx/ngx.hpp"

struct redisReader;

namespace limit_sliding {

/* Bytes of a string in an array, such as the name of a host. */
constexpr size_t kReplyString = 256;

/* Numbers in a reply. */
constexpr size_t kReplyNumbers = 4096;

struct Reply {
    int type;                       /* REDIS_REPLY_* */
    size_t n;                       /* elements of an array */
    int64_t numbers[kReplyNumbers]; /* of an array; the first one is that of a number */
    std::string_view strings[2];    /* of an array, in `string_text` */
    size_t len;                     /* of an error or another text, cut to fit */
    u_char text[256];
    char string_text[2][kReplyString];
};

/* Returns the text of an error as a line to be logged, which is valid until the next one. */
const char *reply_text(const Reply *reply);

/* Slots of a cluster, and their master. */
struct SlotRange {
    int64_t first;
    int64_t last;
    std::string_view host; /* empty: the node that tells does not know */
    int64_t port;
};

/* Takes the ranges of a reply to CLUSTER SLOTS while it is being read, as the
 * whole of it would need much memory.  Types with more state derive from it. */
struct SlotRangeSink {
    void (*add)(SlotRangeSink &sink, const SlotRange &range);
};

/* Takes the keys of a reply to SCAN while it is being read, or the one text of a reply
 * that is too long for `text`.  Types with more state derive from it. */
struct TextSink {
    void (*add_text)(TextSink &sink, std::string_view text);
};

/* Finds replies in a stream of bytes.  It allocates nothing for one, and takes
 * none that is larger than any that was asked for. */
struct Reader {
    /* Begins a new stream.  Returns false if there is no memory. */
    bool start();
    void stop() { reader.reset(); }

    /* Returns false if there is no memory. */
    bool feed(u_char *data, size_t len);

    /* NGX_OK: `reply` holds the next one; NGX_AGAIN: there is no whole one yet;
     * NGX_ERROR: it is invalid, or too large.  A sink is nullptr unless the
     * reply is to its command. */
    ngx_int_t next(SlotRangeSink *to, TextSink *texts_to);

    /* Returns true if a part of a reply has come, which is not an error: that is read to
     * its end, to be logged. */
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
