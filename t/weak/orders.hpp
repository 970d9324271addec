/* Copyright (C) the limit_sliding authors */

/* What the operations of a scene note when they are played one by one, in any order. */

#pragma once

#include "atomic.hpp"
#include "checker.hpp"

namespace weak {

/* Of what is being played; note() adds to it. */
extern Outcome outcome;

/* The process whose operation is played, or kProcesses for the end. */
extern unsigned ordered_process;

unsigned processes_of(const Scene &scene);

/* Plays all orders of a scene, each on a copy of the memory as it was built. */
void play_orders(const Scene &scene, unsigned char *memory, const unsigned char *built);

/* True if the outcome is that of one of these orders. */
bool is_explained();

void print_notes();

/* Does an access to memory that nobody else accesses. */
uint64_t play_plain(Kind kind, const Operands &operands);

uint64_t plain_load(const void *word, size_t bytes);

} // namespace weak
