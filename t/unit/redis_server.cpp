/* Copyright (C) the limit_sliding authors */

#include "redis_server.hpp"
#include "redis/protocol/scripts.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace limit_sliding;

int redis_server_start(redis_server_t *server) {
    strcpy(server->directory, "/tmp/limit_sliding.XXXXXX");

    if (mkdtemp(server->directory) == NULL) { return 0; }

    snprintf(server->socket, sizeof(server->socket), "%s/redis", server->directory);

    server->pid = fork();

    if (server->pid == 0) {
        int null = open("/dev/null", O_RDWR);

        /* a test that dies takes it along */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", server->socket,
               "--save", "", "--dir", server->directory, NULL);
        _exit(127);
    }

    for (int i = 0; i < 500; i++) {
        server->context = redisConnectUnix(server->socket);

        if (server->context != NULL && server->context->err == 0) { return 1; }

        redisFree(server->context);
        usleep(20000);
    }

    return 0;
}

/*
 * In place of the line that reads the clock.  A key's expiry is kept by its
 * side, in the history's time.
 */
static const char clock_line[]
    = "local now, real = tonumber(ARGV[#ARGV]), redis "
      "ARGV[#ARGV] = nil "
      "local function forget(key) "
      "local at = real.call('GET', 'until:' .. key) "
      "if at and tonumber(at) <= now then real.call('DEL', key) end end "
      "local function expire(key, ms) "
      "real.call('SET', 'until:' .. key, "
      "string.format('%.0f', now + tonumber(ms))) end "
      "local redis = {} "
      "redis.call = function(name, ...) local a = {...} "
      "if name == 'SET' then expire(a[1], a[4]) "
      "return real.call('SET', a[1], a[2]) end "
      "if name == 'PEXPIRE' then return expire(a[1], a[2]) end "
      "if name == 'MGET' then for _, key in ipairs(a) do forget(key) end end "
      "return real.call(name, ...) end "
      "redis.pcall = function(name, key, ...) forget(key) "
      "return real.pcall(name, key, ...) end ";

/* Tests name the states alone; but in a cluster their limits follow them, and the debts where
 * costs are settled. */
static const char keys_line[] = "local KEYS = (function(keys) local names = {} "
                                "for _, key in ipairs(keys) do names[#names + 1] = key "
                                "names[#names + 1] = key .. ':limit' %s end "
                                "return names end)(KEYS) ";
static const char debts_line[] = "names[#names + 1] = key .. ':debt'";

/* Loads a script whose first line, which reads the clock, is replaced by these. */
static int load(redis_server_t *server, const char *keys, std::string_view script, char sha[41]) {
    const size_t line = script.find('\n');
    const size_t clock = script.find("'TIME'");
    redisReply *reply;
    int is_loaded;

    if (line == script.npos || clock > line || script.find("'TIME'", line) != script.npos) {
        return 0;
    }

    script.remove_prefix(line);
    reply = static_cast<redisReply *>(redisCommand(server->context, "SCRIPT LOAD %s%s%b",
                                                   clock_line, keys, script.data(), script.size()));
    is_loaded = reply != NULL && reply->type == REDIS_REPLY_STRING;

    if (is_loaded) { snprintf(sha, 41, "%s", reply->str); }

    freeReplyObject(reply);

    return is_loaded;
}

int redis_server_load_text(redis_server_t *server, std::string_view script, char sha[41]) {
    return load(server, "", script, sha);
}

int redis_server_load(redis_server_t *server, unsigned algorithms, char sha[41]) {
    char script[65536];
    size_t bytes = limit_sliding::script(algorithms, script, sizeof(script));
    char keys[sizeof(keys_line) + sizeof(debts_line)] = "";

    if ((algorithms & kScriptCluster) == 0) {
        const bool settles = (algorithms & kScriptSettles) != 0;
        snprintf(keys, sizeof(keys), keys_line, settles ? debts_line : "");
    }

    return bytes < sizeof(script) && load(server, keys, {script, bytes}, sha);
}

void redis_server_stop(redis_server_t *server) {
    redisFree(server->context);
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    unlink(server->socket);
    rmdir(server->directory);
}
