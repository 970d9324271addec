/* Copyright (C) the limit_sliding authors */

/* A Redis that has loaded the script, for the tests of that. */

#pragma once

#include "redis/scripts.hpp"
#include "redis_server.hpp"
#include "support.hpp"

static redis_server_t server;

/* For one server, in a cluster, where costs are settled, and where places have limits
 * of several Redises. */
static char script_sha[4][41];

static inline int start(void **state) {
    (void)state;
    assert_true(redis_server_start(&server));

    assert_true(redis_server_load(&server, 0x1f, script_sha[0]));
    assert_true(redis_server_load(&server, 0x1f | kScriptCluster, script_sha[1]));
    assert_true(redis_server_load(&server, 0x1f | kScriptSettles, script_sha[2]));
    assert_true(redis_server_load(&server, 0x1f | kScriptGivesBack, script_sha[3]));

    return 0;
}

static inline int stop(void **state) {
    (void)state;
    redis_server_stop(&server);
    return 0;
}

static inline void forget_all(void) { freeReplyObject(redisCommand(server.context, "FLUSHALL")); }
