/* Copyright (C) the limit_sliding authors */

/* A redis-server of a test's own, on a unix socket in its own directory. */

#pragma once

#include <hiredis/hiredis.h>
#include <sys/types.h>

#include <string_view>

struct redis_server_t {
    pid_t pid;
    char directory[32];
    char socket[48];
    redisContext *context;
};

/* Starts it and connects; returns 0 if that takes longer than 10 s. */
int redis_server_start(redis_server_t *server);

/*
 * Loads a script whose first line, and no other, reads the clock; its digest goes to
 * `sha`.  The clock is the last argument of a call, in ms, and keys expire by it.
 * Returns 0 if that fails.
 */
int redis_server_load_text(redis_server_t *server, std::string_view script, char sha[41]);

/* The same for the script of limit_sliding::script(), whose calls and replies are numbers, see
 * script_numbers.hpp.  With `own_clock`, the script reads the clock itself. */
int redis_server_load(redis_server_t *server, unsigned algorithms, char sha[41],
                      bool own_clock = false);

/* Stops it and removes all that it left. */
void redis_server_stop(redis_server_t *server);
