/* Copyright (C) the limit_sliding authors */

/* Stops a function at each one of its atomic accesses to some memory (step_atomic.hpp). */

#pragma once

#include "support.hpp"

#include "core/base/atomics.hpp"

#include <setjmp.h>
#include <sys/mman.h>
#include <sys/time.h>

/* A function that never ends is ended after so much processor time, which a busy machine does not
 * take away. */
#define STEP_PATIENCE_S 60

static struct {
    void *memory; /* whole pages */
    size_t bytes;
    int is_stepping;
    void (*after)(void); /* an access, of which there were: */
    unsigned accesses;
    unsigned stop_at;      /* before this one; 0: never */
    void (*stopped)(void); /* called then, once; the rest runs freely */
} step;

/* Faults since step_begin(). */
static struct {
    unsigned n;
    unsigned last_at; /* accesses before the last one */
    const char *last;
} step_faults;

static int step_sees(const void *word) {
    return step.is_stepping && (uintptr_t)word - (uintptr_t)step.memory < step.bytes;
}

static void step_before_access(const void *word) {
    if (step_sees(word) && ++step.accesses == step.stop_at) {
        step.is_stepping = 0;
        step.stopped();
    }
}

static void step_after_access(const void *word) {
    if (step_sees(word) && step.after != NULL) {
        step.is_stepping = 0;
        step.after();
        step.is_stepping = 1;
    }
}

/* 0: no end. */
static void step_set_patience(long s) {
    struct itimerval patience = {{0, 0}, {s, 0}};

    assert_int_equal(setitimer(ITIMER_PROF, &patience, NULL), 0);
}

/* New memory until step_end(). */
static void *step_begin(size_t bytes) {
    memset(&step, 0, sizeof(step));
    memset(&step_faults, 0, sizeof(step_faults));
    step.bytes = bytes;
    step.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(step.memory != MAP_FAILED);
    limit_sliding::before_access = step_before_access;
    limit_sliding::after_access = step_after_access;
    step_set_patience(STEP_PATIENCE_S);

    return step.memory;
}

static void step_end(void) {
    step_set_patience(0);
    limit_sliding::before_access = NULL;
    limit_sliding::after_access = NULL;
    munmap(step.memory, step.bytes);
}

/* Notes a fault.  A check that is called at an access must not fail the test there. */
static inline void step_fault(const char *what) {
    step_faults.n++;
    step_faults.last_at = step.accesses;
    step_faults.last = what;
}

/* Does step_end(), and fails if there were faults. */
static inline void step_end_of(const char *name) {
    step_end();

    if (step_faults.n > 0) {
        fail_msg("%s: %u times %s, the last at access %u", name, step_faults.n, step_faults.last,
                 step_faults.last_at);
    }
}

#define STEP_THROUGH(work)                                                                         \
    do {                                                                                           \
        step.accesses = 0;                                                                         \
        step.is_stepping = 1;                                                                      \
        work;                                                                                      \
        step.is_stepping = 0;                                                                      \
    } while (0)

/*
 * Does `work` again and again, and stops it before its first access, its second, and so on, and
 * at last never.  `before` restores the memory, `after` checks it.  Returns how often `work` was
 * done.
 */
template <class Before, class Work, class After>
static unsigned step_stop_everywhere(Before before, Work work, After after) {
    step.stop_at = 0;

    do {
        before();
        step.stop_at++;
        STEP_THROUGH(work());
        after();
    } while (step.accesses >= step.stop_at);

    return step.stop_at;
}

static struct {
    void *seen;     /* the memory after the last change */
    unsigned still; /* changes to make */
    jmp_buf dead;
} step_other;

static inline void step_count_change(void) {
    if (memcmp(step_other.seen, step.memory, step.bytes) != 0) {
        memcpy(step_other.seen, step.memory, step.bytes);

        if (--step_other.still == 0) { longjmp(step_other.dead, 1); }
    }
}

/*
 * While something stands still: another does `work`, and dies when it has made
 * so many changes.  Returns whether it came so far.
 */
static inline int step_other_dies(void (*work)(void), unsigned changes) {
    unsigned accesses = step.accesses;
    unsigned stop_at = step.stop_at;
    volatile int is_dead = 1;

    step_other.still = changes;
    step_other.seen = malloc(step.bytes);
    assert_non_null(step_other.seen);
    memcpy(step_other.seen, step.memory, step.bytes);
    step.after = step_count_change;
    step.stop_at = 0;

    if (setjmp(step_other.dead) == 0) {
        STEP_THROUGH(work());
        is_dead = 0;
    }

    step.is_stepping = 0;
    free(step_other.seen);
    step.after = NULL;
    step.accesses = accesses;
    step.stop_at = stop_at;

    return is_dead;
}
