/*
 * Copyright (C) the limit_sliding authors
 */

/* How processes of a test end. */

#ifndef LIMIT_SLIDING_UNIT_EXIT_HPP
#define LIMIT_SLIDING_UNIT_EXIT_HPP

#include "support.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

/* Waits for its end, by SIGKILL or with exit code 0. */
static inline void expect_exit(pid_t pid, int killed)
{
    int status;

    while (waitpid(pid, &status, 0) == -1) {
        assert_int_equal(errno, EINTR);
    }

    if (killed) {
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return;
    }

    if (WIFSIGNALED(status)) {
        fail_msg("a survivor was ended by signal %d", WTERMSIG(status));
    }

    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
