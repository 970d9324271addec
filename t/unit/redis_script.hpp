/* Copyright (C) the limit_sliding authors */

/* A Redis that has loaded the script, for the tests of that. */

#pragma once

#include "redis/protocol/scripts.hpp"
#include "redis_server.hpp"
#include "support.hpp"

static redis_server_t server;

/* For one server, in a cluster, where costs are settled, and where places have limits
 * of several Redises; and the same where rejected requests are recorded. */
#define SCRIPT_KINDS 4
static char script_sha[2 * SCRIPT_KINDS][41];

static inline int start(void **state) {
    (void)state;
    assert_true(redis_server_start(&server));

    for (unsigned i = 0; i < 2 * SCRIPT_KINDS; i++) {
        static const unsigned kinds[] = {0, kScriptCluster, kScriptSettles, kScriptGivesBack};

        assert_true(redis_server_load(
            &server, 0x1f | kinds[i % SCRIPT_KINDS] | (i < SCRIPT_KINDS ? 0 : kScriptRejected),
            script_sha[i]));
    }

    return 0;
}

static inline int stop(void **state) {
    (void)state;
    redis_server_stop(&server);
    return 0;
}

static inline void forget_all(void) { freeReplyObject(redisCommand(server.context, "FLUSHALL")); }
