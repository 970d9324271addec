/*
 * Copyright (C) the limit_sliding authors
 */

/* Replies of Redis, and the reader that finds them in what was received. */

#ifndef LIMIT_SLIDING_REDIS_REPLY_HPP
#define LIMIT_SLIDING_REDIS_REPLY_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

struct Node;

/* Bytes of a string in a reply, as names of hosts are. */
constexpr auto kReplyString = 256;

/* Numbers in a reply. */
constexpr auto kReplyNumbers = 4096;

struct Reply {
    int type;     /* REDIS_REPLY_* */
    ngx_uint_t n; /* elements of an array */
    int64_t numbers[kReplyNumbers];
    Node *map;            /* the map of slots is expected, of this node */
    ngx_str_t strings[2]; /* of its first ones */
    u_char string_text[2][kReplyString];
    size_t len; /* of any other */
    u_char text[256];
};

void *reader_create(Reply *reply);
void reader_free(void *reader);
ngx_int_t reader_feed(void *reader, u_char *data, size_t len);
ngx_int_t reader_next(void *reader);

/* Returns an error as a line to be logged, valid until the next one. */
char *reply_text(Reply *reply);

} // namespace limit_sliding

#endif
