/* Copyright (C) the limit_sliding authors */

#pragma once

#include "support.hpp"

#include <hiredis/hiredis.h>
#include <stdio.h>

/* Returns the numbers of a reply of the script but for its time, as text in static
 * memory, and frees the reply.  If it is an error, the test fails. */
static inline const char *numbers_of(redisReply *reply) {
    static char text[512];
    size_t n = 0;

    assert_non_null(reply);

    if (reply->type != REDIS_REPLY_ARRAY) { fail_msg("%s", reply->str); }

    text[0] = '\0';

    for (size_t i = 1; i < reply->elements; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld", i > 1 ? " " : "",
                              reply->element[i]->integer);
    }

    freeReplyObject(reply);

    return text;
}
