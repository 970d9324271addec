/* Copyright (C) the limit_sliding authors */

/*
 * Nanoseconds per decision of the core alone, of its peer (peer.h) and of what
 * no table can do without, side by side: interleaved rounds in one run, of which
 * the median counts.
 *
 *     core [--data FILE] [--round-us N] [largest number of keys]
 */

#include <atomic>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"
#include "draw.hpp"
#include "peer.hpp"
#include "table.hpp"

using namespace limit_sliding;

#define ROUNDS 5
#define BATCH 1024u /* decisions between looks at the clock */
#define SIZES 5
#define PAGE 4096u
#define SLOTS_USED 0.75 /* of the zone */

enum { CORE, PEER, BASE, DECIDERS };

struct memory_t {
    void *data;
    size_t bytes;
};

struct subject_t {
    memory_t memory[DECIDERS];
    Zone *zone;
    Claim claim; /* decided again and again */
    peer_t *peer;
    uint64_t seen; /* by decide_base(): 0, as is known once it was read */
};

typedef void (*decide_pt)(subject_t *subject, uint64_t key, uint64_t now_ms);

enum { UNIFORM, ZIPF, DEMANDS };

static const char *const demands[DEMANDS] = {"uniform", "zipf"};

/* Medians, by number of keys. */
struct figures_t {
    unsigned n;
    uint64_t keys[SIZES];
    double ns[SIZES][DECIDERS];
};

struct shared_t {
    std::atomic_uint ready;
    double ns[2]; /* a decision, by process */
};

static const Policy policy = {.window_ms = 3600000, .algorithm = Algorithm::kCounter};

static uint64_t round_ns = 100000000;
static table_t table;
static figures_t blocks[2][DEMANDS]; /* by processes - 1 */
static char behind[512];             /* rows in which the core is */
static double least_of_peer = INFINITY, most_of_peer;
static double least_of_base = INFINITY, most_of_base;

static shared_t *results;
static uint32_t *sequence[2];

static memory_t map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }

    return (memory_t){memory, bytes};
}

static uint64_t now_ns(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Key numbers are spread over 64 bits, as addresses or tokens would be. */

static uint64_t key_of(uint64_t i) {
    i ^= i >> 31;
    i *= 0x9e3779b97f4a7c15;

    return i ^ i >> 29;
}

/* Decides as a request does: what its limit knows in advance is not looked up. */
static void decide_core(subject_t *subject, uint64_t key, uint64_t now_ms) {
    static Decide *const consume = consume_by_history(policy, kNarrowMax);

    Claim *claim = &subject->claim;

    claim->hash = subject->zone->hash({(const char *)&key, sizeof(key)});
    consume(claim, now_ms);
}

static void decide_peer(subject_t *subject, uint64_t key, uint64_t now_ms) {
    uint64_t hash = subject->zone->hash({(const char *)&key, sizeof(key)});

    peer_decide(subject->peer, (uint32_t)hash, key, now_ms, 1000000, 1000000);
}

/*
 * SipHash of a key and a look at one place of as much memory.  The next key
 * waits for what is seen, as a worker has no other to go on with.
 */

static void decide_base(subject_t *subject, uint64_t key, uint64_t now_ms) {
    (void)now_ms;

    key += subject->seen;

    uint64_t hash = subject->zone->hash({(const char *)&key, sizeof(key)});

    const memory_t *zeros = &subject->memory[BASE];
    const uint64_t *words = static_cast<const uint64_t *>(zeros->data);

    subject->seen = words[hash % (zeros->bytes / sizeof(uint64_t))];
}

static const decide_pt decide[DECIDERS] = {decide_core, decide_peer, decide_base};

/* A process that was forked has yet to see its pages, which takes time. */

static void touch(const memory_t *memory) {
    for (size_t i = 0; i < memory->bytes; i += PAGE) {
        atomic_fetch_or((std::atomic_uchar *)memory->data + i, 0);
    }
}

static void run(unsigned decider, subject_t *subject, unsigned process, unsigned processes) {
    uint64_t done = 0;
    uint64_t begin, end;
    uint32_t *keys = sequence[process];

    touch(&subject->memory[decider]);

    atomic_fetch_add(&results->ready, 1);
    while (atomic_load(&results->ready) < processes) {
        sched_yield();
    }

    begin = now_ns();

    do {
        uint64_t now_ms = now_ns() / 1000000;

        for (unsigned i = 0; i < BATCH; i++) {
            decide[decider](subject, key_of(keys[(done + i) % SEQUENCE]), now_ms);
        }

        done += BATCH;
        end = now_ns();
    } while (end - begin < round_ns);

    results->ns[process] = (double)(end - begin) / (double)done;
}

/* The mean over the processes. */

static double measure(unsigned decider, subject_t *subject, unsigned processes) {
    double ns = 0;

    atomic_store(&results->ready, 0);

    for (unsigned p = 0; p < processes; p++) {
        if (fork() == 0) {
            run(decider, subject, p, processes);
            _exit(0);
        }
    }

    while (wait(NULL) > 0) {
        /* void */
    }

    for (unsigned p = 0; p < processes; p++) {
        ns += results->ns[p] / processes;
    }

    return ns;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static void note(double ratio, double *least, double *most) {
    *least = fmin(*least, ratio);
    *most = fmax(*most, ratio);
}

static void cell_spread(table_t *table, const double *ns) {
    table_cell(table, "%.0f [%.0f %.0f]", ns[ROUNDS / 2], ns[0], ns[ROUNDS - 1]);
}

static void compare(subject_t *subject, uint64_t keys, unsigned demand, unsigned processes) {
    double ns[DECIDERS][ROUNDS], median[DECIDERS];

    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned d = 0; d < DECIDERS; d++) {
            ns[d][i] = measure(d, subject, processes);
        }
    }

    for (unsigned d = 0; d < DECIDERS; d++) {
        qsort(ns[d], ROUNDS, sizeof(double), ascending);
        median[d] = ns[d][ROUNDS / 2];
    }

    table_cell(&table, "%lu, %s, %u", keys, demands[demand], processes);

    for (unsigned d = 0; d < DECIDERS; d++) {
        cell_spread(&table, ns[d]);
    }

    table_cell(&table, "%.2f", median[CORE] / median[PEER]);
    table_cell(&table, "%.2f", median[CORE] / median[BASE]);
    table_end_row(&table);

    if (median[CORE] > median[PEER]) {
        size_t used = strlen(behind);

        snprintf(behind + used, sizeof(behind) - used, "%s%lu keys, %s, %u", used ? "; " : "", keys,
                 demands[demand], processes);
    }

    note(median[CORE] / median[PEER], &least_of_peer, &most_of_peer);
    note(median[CORE] / median[BASE], &least_of_base, &most_of_base);

    figures_t *figures = &blocks[processes - 1][demand];

    figures->keys[figures->n] = keys;
    memcpy(figures->ns[figures->n++], median, sizeof(median));
}

static void bench(uint64_t keys) {
    static const uint8_t secret[kSecretBytes] = "core benchmark";
    size_t zone_bytes = (size_t)((double)keys * 16 / SLOTS_USED) + PAGE;
    subject_t subject
        = {.memory
           = {[CORE] = map(zone_bytes), [PEER] = map(peer_bytes(keys)), [BASE] = map(zone_bytes)}};

    subject.zone = Zone::init(subject.memory[CORE].data, zone_bytes, policy, 0, secret);
    subject.claim = {.zone = subject.zone, .policy = &policy, .limit = kNarrowMax, .cost = 1};
    subject.peer = peer_init(subject.memory[PEER].data, keys);

    /* all of them, in an order of no locality */

    for (uint64_t i = 0; i < keys; i++) {
        uint64_t key = key_of(i * 7919 % keys);

        decide_core(&subject, key, now_ns() / 1000000);
        decide_peer(&subject, key, now_ns() / 1000000);
    }

    for (unsigned processes = 1; processes <= 2; processes++) {
        draw_uniform(sequence[0], keys);
        draw_uniform(sequence[1], keys);
        compare(&subject, keys, UNIFORM, processes);
        draw_zipf(sequence[0], keys, 0.99);
        draw_zipf(sequence[1], keys, 0.99);
        compare(&subject, keys, ZIPF, processes);
    }

    for (unsigned d = 0; d < DECIDERS; d++) {
        munmap(subject.memory[d].data, subject.memory[d].bytes);
    }
}

/* Blocks for core.gp: keys, and ns of all. */

static void write_data(const char *path) {
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        perror(path);
        exit(1);
    }

    for (unsigned i = 0; i < 2 * DEMANDS; i++) {
        const figures_t *f = &blocks[i / DEMANDS][i % DEMANDS];

        for (unsigned k = 0; k < f->n; k++) {
            fprintf(file, "%lu\t%.1f\t%.1f\t%.1f\n", f->keys[k], f->ns[k][CORE], f->ns[k][PEER],
                    f->ns[k][BASE]);
        }

        fprintf(file, "\n\n");
    }

    fclose(file);
}

int main(int argc, char **argv) {
    static const uint64_t sizes[SIZES] = {1000, 10000, 100000, 1000000, 10000000};
    uint64_t largest = UINT64_MAX;
    const char *data = NULL;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--data") == 0 && i + 1 < argc) {
            data = argv[++i];

        } else if (strcmp(argv[i], "--round-us") == 0 && i + 1 < argc) {
            round_ns = 1000 * strtoull(argv[++i], NULL, 10);

        } else {
            largest = strtoull(argv[i], NULL, 10);
        }
    }

    results = static_cast<shared_t *>(map(sizeof(shared_t)).data);
    sequence[0] = static_cast<uint32_t *>(map(SEQUENCE * sizeof(uint32_t)).data);
    sequence[1] = static_cast<uint32_t *>(map(SEQUENCE * sizeof(uint32_t)).data);

    table_cell(&table, "keys, demand, processes");
    table_cell(&table, "limit_sliding, ns");
    table_cell(&table, "rbtree, LRU, lock");
    table_cell(&table, "SipHash, miss");
    table_cell(&table, "x rbtree");
    table_cell(&table, "x miss");
    table_end_row(&table);

    for (unsigned i = 0; i < SIZES; i++) {
        if (sizes[i] <= largest) { bench(sizes[i]); }
    }

    table_print(&table);

    if (behind[0]) { printf("The tree is faster in these cases: %s.\n\n", behind); }

    printf("In short: a decision takes %.2f to %.2f times as long as one by a"
           " red-black tree and an LRU\nlist under a lock, and %.1f to %.1f"
           " times as long as SipHash and one look at memory.\n",
           least_of_peer, most_of_peer, least_of_base, most_of_base);

    if (data) { write_data(data); }

    return 0;
}
