/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

namespace weak {

/* Shared memory of a scene, zeroed before build(). */
constexpr size_t kMemoryBytes = 64 * 1024;

constexpr unsigned kProcesses = 3;
constexpr unsigned kOperations = 4;
constexpr unsigned kNotes = 12;

using Operation = void (*)();

/* What the operations of each process have noted, and in the end what end() has. */
struct Outcome {
    uint64_t notes[kProcesses + 1][kNotes];
    unsigned counts[kProcesses + 1];
    bool has_died; /* the first process */

    uint64_t *end() { return notes[kProcesses]; }
};

/*
 * What a few processes do with shared memory at the same time.  build() makes the memory,
 * once; each execution begins with it.  Each process does its operations one after the
 * other, and they note what they have come to know; end() notes what is there in the end.
 * An execution fails unless its notes are the same when some order of all operations is
 * played one by one; or, where there is accepts(), unless that returns true.  The first
 * process may be killed, at any of its accesses, if it is mortal.
 */
struct Scene {
    const char *name;
    unsigned thousands; /* executions */
    void (*build)(void *memory);
    Operation processes[kProcesses][kOperations];
    void (*end)();
    bool (*accepts)(Outcome &outcome) = nullptr;
    bool is_mortal = false;
};

void note(uint64_t what);

/* Makes the execution fail unless it is true. */
void check(bool is_true, const char *what);

struct Result {
    bool holds;
    uint64_t executions;
};

/* Plays a scene, `percent` of its executions.  What fails is told on stderr, every
 * access of that execution if `is_loud`. */
Result play(const Scene &scene, unsigned percent, bool is_loud);

/* Gives an access another order than it asks for: "src/core/table/slot.hpp:142=acquire".
 * False: that is not an access and an order. */
bool weaken(const char *name);

/* Prints a line for each access that was played: its name, what it does and in which
 * order, and how often it was. */
void print_accesses();

} // namespace weak
