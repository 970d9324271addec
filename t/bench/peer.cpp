/* Copyright (C) the limit_sliding authors */

#include "peer.hpp"

#include <atomic>
#include <bsd/sys/tree.h>
#include <sched.h>
#include <sys/queue.h>

typedef struct node_s {
    RB_ENTRY(node_s) tree;
    TAILQ_ENTRY(node_s) used;
    uint32_t hash;
    uint64_t key;
    uint64_t last_ms;
    int64_t excess; /* in 1/1000 request */
} node_t;

RB_HEAD(tree, node_s);
TAILQ_HEAD(used, node_s);

struct peer_s {
    std::atomic_int lock;
    struct tree tree;
    struct used used; /* the least recently used is last */
    uint64_t taken;
    uint64_t keys;
    node_t nodes[];
};

static int compare(const node_t *a, const node_t *b) {
    if (a->hash != b->hash) { return a->hash < b->hash ? -1 : 1; }

    return a->key < b->key ? -1 : a->key > b->key;
}

RB_GENERATE(tree, node_s, tree, compare)

/* Spins, and after a while yields, as nginx does with more than one CPU. */

static void lock(peer_t *peer) {
    for (;;) {
        int free = 0;

        if (atomic_compare_exchange_strong(&peer->lock, &free, 1)) { return; }

        for (unsigned n = 1; n < 2048; n <<= 1) {
            for (unsigned i = 0; i < n; i++) {
                __builtin_ia32_pause();
            }

            free = 0;
            if (atomic_load(&peer->lock) == 0
                && atomic_compare_exchange_strong(&peer->lock, &free, 1)) {
                return;
            }
        }

        sched_yield();
    }
}

size_t peer_bytes(uint64_t keys) { return sizeof(peer_t) + keys * sizeof(node_t); }

peer_t *peer_init(void *memory, uint64_t keys) {
    peer_t *peer = static_cast<peer_t *>(memory);

    RB_INIT(&peer->tree);
    TAILQ_INIT(&peer->used);
    peer->keys = keys;

    return peer;
}

/* A node for a new key: the next one, or the one unused for longest. */

static node_t *take(peer_t *peer) {
    if (peer->taken < peer->keys) { return &peer->nodes[peer->taken++]; }

    node_t *node = TAILQ_LAST(&peer->used, used);

    TAILQ_REMOVE(&peer->used, node, used);
    RB_REMOVE(tree, &peer->tree, node);

    return node;
}

int peer_decide(peer_t *peer, uint32_t hash, uint64_t key, uint64_t now_ms, uint64_t rate,
                uint64_t burst) {
    node_t wanted = {.hash = hash, .key = key};
    int admitted = 1;

    lock(peer);

    node_t *node = RB_FIND(tree, &peer->tree, &wanted);

    if (node == NULL) {
        node = take(peer);
        *node = wanted;
        node->last_ms = now_ms;
        RB_INSERT(tree, &peer->tree, node);
        TAILQ_INSERT_HEAD(&peer->used, node, used);

    } else {
        TAILQ_REMOVE(&peer->used, node, used);
        TAILQ_INSERT_HEAD(&peer->used, node, used);

        int64_t excess = node->excess - (int64_t)(rate * (now_ms - node->last_ms)) + 1000;

        if (excess < 0) { excess = 0; }

        admitted = (uint64_t)excess <= burst * 1000;

        if (admitted) {
            node->excess = excess;
            node->last_ms = now_ms;
        }
    }

    atomic_store(&peer->lock, 0);

    return admitted;
}
