/* Copyright (C) the limit_sliding authors */

/*
 * Stops a function at each one of its accesses to some memory.  The memory is
 * protected, so that every access is a fault.  Its handler plays others, or
 * lets the access happen, after which the processor's trap flag calls another
 * handler.
 */

#pragma once

#include "support.hpp"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

/* TSan has its own idea of signals, and nothing to find in one thread */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !__has_feature(thread_sanitizer)
#define CAN_STEP 1
#include <ucontext.h>
#else
#define CAN_STEP 0
#endif

/* A function that never ends is ended after so much processor time, which a busy machine does not
 * take away. */
#define STEP_PATIENCE_S 60

#if CAN_STEP

static struct {
    void *memory; /* whole pages */
    size_t bytes;
    void (*after)(void); /* an access, of which there were: */
    unsigned accesses;
    unsigned stop_at;      /* before this one; 0: never */
    void (*stopped)(void); /* called then, once; the rest runs freely */
} step;

#define STEP_TRAP_FLAG 0x100u

static void step_set_trap(void *context, int on) {
    ucontext_t *user = static_cast<ucontext_t *>(context);
    greg_t flags = user->uc_mcontext.gregs[REG_EFL] & ~(greg_t)STEP_TRAP_FLAG;

    user->uc_mcontext.gregs[REG_EFL] = flags | (on ? STEP_TRAP_FLAG : 0);
}

static void step_protect(int protection) {
    if (mprotect(step.memory, step.bytes, protection) != 0) { abort(); }
}

static void step_on_fault(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr - (uintptr_t)step.memory;

    if (at >= step.bytes) {
        signal(number, SIG_DFL);
        return;
    }

    step.accesses++;
    step_protect(PROT_READ | PROT_WRITE);

    if (step.accesses == step.stop_at) {
        step.stopped();
        return;
    }

    step_set_trap(context, 1);
}

static void step_on_trap(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;

    step_set_trap(context, 0);

    if (step.after != NULL) { step.after(); }

    step_protect(PROT_NONE);
}

/* 0: no end. */
static void step_set_patience(long s) {
    struct itimerval patience = {{0, 0}, {s, 0}};

    assert_int_equal(setitimer(ITIMER_PROF, &patience, NULL), 0);
}

/* New memory, and handlers until step_end(). */
static void *step_begin(size_t bytes) {
    struct sigaction fault = {};
    struct sigaction trap = {};

    fault.sa_sigaction = step_on_fault;
    fault.sa_flags = SA_SIGINFO;
    trap.sa_sigaction = step_on_trap;
    trap.sa_flags = SA_SIGINFO;

    memset(&step, 0, sizeof(step));
    step.bytes = bytes;
    step.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(step.memory != MAP_FAILED);
    assert_int_equal(sigaction(SIGSEGV, &fault, NULL), 0);
    assert_int_equal(sigaction(SIGTRAP, &trap, NULL), 0);
    step_set_patience(STEP_PATIENCE_S);

    return step.memory;
}

static void step_end(void) {
    step_set_patience(0);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGTRAP, SIG_DFL);
    munmap(step.memory, step.bytes);
}

/* Before and after: step_protect() of what `work` is to be seen to access. */
#define STEP_THROUGH(work)                                                                         \
    do {                                                                                           \
        step.accesses = 0;                                                                         \
        step_protect(PROT_NONE);                                                                   \
        work;                                                                                      \
        step_protect(PROT_READ | PROT_WRITE);                                                      \
    } while (0)

static struct {
    void *seen;     /* the memory after the last change */
    unsigned still; /* changes to make */
    sigjmp_buf dead;
} step_other;

static inline void step_count_change(void) {
    if (memcmp(step_other.seen, step.memory, step.bytes) != 0) {
        memcpy(step_other.seen, step.memory, step.bytes);

        if (--step_other.still == 0) { siglongjmp(step_other.dead, 1); }
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
    sigset_t none, old;

    step_other.still = changes;
    step_other.seen = malloc(step.bytes);
    assert_non_null(step_other.seen);
    memcpy(step_other.seen, step.memory, step.bytes);
    step.after = step_count_change;
    step.stop_at = 0;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, &old);

    if (sigsetjmp(step_other.dead, 0) == 0) {
        STEP_THROUGH(work());
        is_dead = 0;
    }

    sigprocmask(SIG_SETMASK, &old, NULL);
    step_protect(PROT_READ | PROT_WRITE);
    free(step_other.seen);
    step.after = NULL;
    step.accesses = accesses;
    step.stop_at = stop_at;

    return is_dead;
}

#endif
