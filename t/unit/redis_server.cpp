/* Copyright (C) the limit_sliding authors */

#include "redis_server.hpp"
#include "redis/protocol/scripts.hpp"
#include "script_numbers.hpp"

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
      "if name == 'PEXPIRE' and a[2] ~= 0 then return expire(a[1], a[2]) end "
      "if name == 'MGET' then for _, key in ipairs(a) do forget(key) end end "
      "return real.call(name, ...) end "
      "redis.pcall = function(name, key, ...) forget(key) "
      "return real.pcall(name, key, ...) end ";

/* Loads the text that these parts make together.  Returns 0 if that fails. */
template <size_t kParts>
static int load(redis_server_t *server, const std::string_view (&parts)[kParts], char sha[41]) {
    static char text[131072];
    size_t length = 0;
    for (const std::string_view part : parts) {
        if (part.size() > sizeof(text) - length) { return 0; }
        memcpy(text + length, part.data(), part.size());
        length += part.size();
    }

    auto *reply
        = static_cast<redisReply *>(redisCommand(server->context, "SCRIPT LOAD %b", text, length));
    const int is_loaded = reply != NULL && reply->type == REDIS_REPLY_STRING;
    if (is_loaded) { snprintf(sha, 41, "%s", reply->str); }
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) { fprintf(stderr, "%s\n", reply->str); }

    freeReplyObject(reply);
    return is_loaded;
}

/* Removes the first line from the script, which reads the clock.  Returns false if another line
 * does so. */
static bool remove_clock(std::string_view *script) {
    const size_t line = script->find('\n');
    const size_t clock = script->find("'TIME'");
    if (line == script->npos || clock > line || script->find("'TIME'", line) != script->npos) {
        return false;
    }

    script->remove_prefix(line);
    return true;
}

int redis_server_load_text(redis_server_t *server, std::string_view script, char sha[41]) {
    return remove_clock(&script) && load(server, {clock_line, script}, sha);
}

int redis_server_load(redis_server_t *server, unsigned algorithms, char sha[41], bool own_clock) {
    static char text[65536];
    std::string_view script(text, limit_sliding::script(algorithms, text, sizeof(text)));
    if (script.size() > sizeof(text) || (!own_clock && !remove_clock(&script))) { return 0; }

    return load(server,
                {own_clock ? "" : clock_line,
                 (algorithms & kScriptSettles) != 0 ? "local settles = true " : "local settles ",
                 (algorithms & kScriptCluster) != 0 ? "local cluster = true " : "local cluster ",
                 kScriptNumbers, script, kScriptNumbersEnd},
                sha);
}

void redis_server_stop(redis_server_t *server) {
    redisFree(server->context);
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    unlink(server->socket);
    rmdir(server->directory);
}
