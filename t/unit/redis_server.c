/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis_server.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int redis_server_start(redis_server_t *server)
{
    strcpy(server->directory, "/tmp/limit_sliding.XXXXXX");

    if (mkdtemp(server->directory) == NULL) {
        return 0;
    }

    snprintf(server->socket, sizeof(server->socket), "%s/redis",
             server->directory);

    server->pid = fork();

    if (server->pid == 0) {
        int null = open("/dev/null", O_RDWR);

        /* a test that dies takes it along */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket",
               server->socket, "--save", "", "--dir", server->directory, NULL);
        _exit(127);
    }

    for (int i = 0; i < 500; i++) {
        server->context = redisConnectUnix(server->socket);

        if (server->context != NULL && server->context->err == 0) {
            return 1;
        }

        redisFree(server->context);
        usleep(20000);
    }

    return 0;
}

void redis_server_stop(redis_server_t *server)
{
    redisFree(server->context);
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    unlink(server->socket);
    rmdir(server->directory);
}
