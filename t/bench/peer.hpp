/* Copyright (C) the limit_sliding authors */

/*
 * What the core is measured against: a leaky bucket a key in a red-black tree
 * under one spinlock, every key moved to the head of an LRU list when it is
 * used, the way limit_req keeps its zone.
 */

#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct peer_s peer_t;

/* Bytes of memory for a peer that holds so many keys. */
size_t peer_bytes(uint64_t keys);

/* In zeroed memory that all its users map at the same address. */
peer_t *peer_init(void *memory, uint64_t keys);

/*
 * Accounts a request; `rate` is in requests a second.  Returns 1 if it is
 * within rate and burst.
 */
int peer_decide(peer_t *peer, uint32_t hash, uint64_t key, uint64_t now_ms, uint64_t rate,
                uint64_t burst);
