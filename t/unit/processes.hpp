/* Copyright (C) the limit_sliding authors */

/* Processes at shared memory, of which one is killed in the midst of it. */

#pragma once

#include "support.hpp"

#include <atomic>
#include <errno.h>
#include <new>
#include <signal.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS draws(300)
#define SURVIVORS 2
#define VICTIM SURVIVORS
#define PROCESSES (SURVIVORS + 1)

/* A process that hangs is ended by this. */
#define PATIENCE_S 60

/* Returns zeroed memory that children share. */
template <class T>
static T *share(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);

    return static_cast<T *>(memory);
}

/* Waits for the end of a process, by SIGKILL or with exit code 0. */
static inline void expect_exit(pid_t pid, bool killed) {
    int status;

    while (waitpid(pid, &status, 0) == -1) {
        assert_int_equal(errno, EINTR);
    }

    if (killed) {
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return;
    }

    if (WIFSIGNALED(status)) { fail_msg("a survivor was ended by signal %d", WTERMSIG(status)); }

    assert_int_equal(WEXITSTATUS(status), 0);
}

/*
 * Has every process call work(its number), which does not return in the victim,
 * and kills that one within a millisecond, in every round at another moment.
 * `started` is shared, and 0.
 */
template <class Work>
static void kill_one(unsigned round, std::atomic<unsigned> *started, const Work &work) {
    pid_t pids[PROCESSES];
    uint64_t random = round;
    struct timespec pause = {0, (long)random_below(&random, 1000000)};
    struct timespec moment = {0, 10000};

    for (unsigned i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);

        if (pids[i] == 0) {
            alarm(PATIENCE_S);
            started->fetch_add(1);
            work(i);
            _exit(0);
        }
    }

    while (*started < PROCESSES) {
        nanosleep(&moment, NULL);
    }

    nanosleep(&pause, NULL);
    assert_int_equal(kill(pids[VICTIM], SIGKILL), 0);

    for (unsigned i = 0; i < PROCESSES; i++) {
        expect_exit(pids[i], i == VICTIM);
    }
}
