/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * Nanoseconds per decision of the core alone and of its peer (peer.h), side by
 * side: interleaved rounds in one run, of which the median counts.
 *
 *     core [largest number of keys]
 */

#define _GNU_SOURCE

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "limiter.h"
#include "peer.h"

#define ROUNDS     5
#define ROUND_NS   200000000u
#define SEQUENCE   (1u << 20)    /* keys drawn in advance, a process */
#define BATCH      1024u         /* decisions between looks at the clock */
#define SLOTS_USED 0.75          /* of the zone */

typedef struct {
    limit_sliding_zone_t *zone;
    peer_t *peer;
} subject_t;

typedef void (*decide_pt)(subject_t *subject, uint64_t key, uint64_t now_ms);

typedef struct {
    atomic_uint ready;
    double ns[2]; /* a decision, by process */
} shared_t;

static const limit_sliding_policy_t policy = {
    .window_ms = 3600000, .algorithm = LIMIT_SLIDING_COUNTER
};

static shared_t *shared;
static uint32_t *sequence[2];

static void *
map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }

    return memory;
}

static uint64_t
now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}

static uint64_t
draw(void)
{
    static uint64_t x = 88172645463325252;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;

    return x;
}

/* Key numbers are spread over 64 bits, as addresses or tokens would be. */

static uint64_t
key_of(uint64_t i)
{
    i ^= i >> 31;
    i *= 0x9e3779b97f4a7c15;

    return i ^ i >> 29;
}

static void
decide_core(subject_t *subject, uint64_t key, uint64_t now_ms)
{
    limit_sliding_claim_t claim = {
        .zone = subject->zone,
        .policy = &policy,
        .hash = limit_sliding_zone_hash(subject->zone, &key, sizeof(key)),
        .limit = LIMIT_SLIDING_LIMIT_MAX,
        .cost = 1
    };

    limit_sliding_acquire(&claim, 1, now_ms);
}

static void
decide_peer(subject_t *subject, uint64_t key, uint64_t now_ms)
{
    uint64_t hash = limit_sliding_zone_hash(subject->zone, &key, sizeof(key));

    peer_decide(subject->peer, (uint32_t) hash, key, now_ms, 1000000, 1000000);
}

static void
run(decide_pt decide, subject_t *subject, unsigned process,
    unsigned processes)
{
    uint64_t done = 0;
    uint64_t begin, end;
    uint32_t *keys = sequence[process];

    atomic_fetch_add(&shared->ready, 1);
    while (atomic_load(&shared->ready) < processes) {
        sched_yield();
    }

    begin = now_ns();

    do {
        uint64_t now_ms = now_ns() / 1000000;

        for (unsigned i = 0; i < BATCH; i++) {
            decide(subject, key_of(keys[(done + i) % SEQUENCE]), now_ms);
        }

        done += BATCH;
        end = now_ns();
    } while (end - begin < ROUND_NS);

    shared->ns[process] = (double) (end - begin) / (double) done;
}

/* The mean over the processes. */

static double
measure(decide_pt decide, subject_t *subject, unsigned processes)
{
    double ns = 0;

    atomic_store(&shared->ready, 0);

    for (unsigned p = 0; p < processes; p++) {
        if (fork() == 0) {
            run(decide, subject, p, processes);
            _exit(0);
        }
    }

    while (wait(NULL) > 0) {
        /* void */
    }

    for (unsigned p = 0; p < processes; p++) {
        ns += shared->ns[p] / processes;
    }

    return ns;
}

static int
ascending(const void *a, const void *b)
{
    double x = *(const double *) a;
    double y = *(const double *) b;

    return (x > y) - (x < y);
}

static void
compare(subject_t *subject, uint64_t keys, const char *name,
    unsigned processes)
{
    double core[ROUNDS], peer[ROUNDS];

    for (unsigned i = 0; i < ROUNDS; i++) {
        core[i] = measure(decide_core, subject, processes);
        peer[i] = measure(decide_peer, subject, processes);
    }

    qsort(core, ROUNDS, sizeof(double), ascending);
    qsort(peer, ROUNDS, sizeof(double), ascending);

    printf("%10lu  %-7s  %9u  %5.0f (%.0f-%.0f)\t%6.0f (%.0f-%.0f)\t%5.1f\n",
           keys, name, processes, core[ROUNDS / 2], core[0], core[ROUNDS - 1],
           peer[ROUNDS / 2], peer[0], peer[ROUNDS - 1],
           peer[ROUNDS / 2] / core[ROUNDS / 2]);
    fflush(stdout);
}

static void
draw_uniform(uint64_t keys)
{
    for (unsigned p = 0; p < 2; p++) {
        for (unsigned i = 0; i < SEQUENCE; i++) {
            sequence[p][i] = (uint32_t) (draw() % keys);
        }
    }
}

/* J. Gray et al., "Quickly generating billion-record synthetic databases". */

static void
draw_zipf(uint64_t keys, double theta)
{
    double zeta = 0;

    for (uint64_t i = 1; i <= keys; i++) {
        zeta += pow((double) i, -theta);
    }

    double alpha = 1 / (1 - theta);
    double zeta2 = 1 + pow(0.5, theta);
    double eta = (1 - pow(2 / (double) keys, 1 - theta)) / (1 - zeta2 / zeta);

    for (unsigned p = 0; p < 2; p++) {
        for (unsigned i = 0; i < SEQUENCE; i++) {
            double u = (double) (draw() >> 11) / 9007199254740992.0;
            double rank = u * zeta < 1 ? 0
                          : u * zeta < zeta2 ? 1
                          : (double) keys * pow(eta * u - eta + 1, alpha);

            sequence[p][i] = (uint32_t) fmin(rank, (double) keys - 1);
        }
    }
}

static void
bench(uint64_t keys)
{
    static const uint8_t secret[LIMIT_SLIDING_SECRET_BYTES] = "core benchmark";
    size_t zone_bytes = (size_t) ((double) keys * 16 / SLOTS_USED) + 4096;
    void *zone_memory = map(zone_bytes);
    void *peer_memory = map(peer_bytes(keys));
    subject_t subject = {
        limit_sliding_zone_init(zone_memory, zone_bytes, &policy, 0, secret),
        peer_init(peer_memory, keys)
    };

    /* all of them, in an order of no locality */

    for (uint64_t i = 0; i < keys; i++) {
        uint64_t key = key_of(i * 7919 % keys);

        decide_core(&subject, key, now_ns() / 1000000);
        decide_peer(&subject, key, now_ns() / 1000000);
    }

    for (unsigned processes = 1; processes <= 2; processes++) {
        draw_uniform(keys);
        compare(&subject, keys, "uniform", processes);
        draw_zipf(keys, 0.99);
        compare(&subject, keys, "zipf", processes);
    }

    munmap(zone_memory, zone_bytes);
    munmap(peer_memory, peer_bytes(keys));
}

int
main(int argc, char **argv)
{
    static const uint64_t sizes[] = { 1000, 100000, 1000000, 10000000 };
    uint64_t largest = argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_MAX;

    shared = map(sizeof(shared_t));
    sequence[0] = map(SEQUENCE * sizeof(uint32_t));
    sequence[1] = map(SEQUENCE * sizeof(uint32_t));

    puts("ns per decision, median (min-max)");
    puts("      keys  demand   processes  limit_sliding\trbtree+LRU+lock\t"
         "ratio");

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i] <= largest) {
            bench(sizes[i]);
        }
    }

    return 0;
}
