/* Copyright (C) the limit_sliding authors */

#include "orders.hpp"

#include <cstdio>
#include <cstring>

namespace weak {

Outcome outcome;
unsigned ordered_process;

namespace {

constexpr size_t kOrdersMax = 4096;
Outcome orders[kOrdersMax];
size_t orders_count;

const Scene *scene;
unsigned char *memory;
const unsigned char *built;

bool is_same_of(unsigned process, const Outcome &a, const Outcome &b) {
    return a.counts[process] == b.counts[process]
           && std::memcmp(a.notes[process], b.notes[process], a.counts[process] * sizeof(uint64_t))
                  == 0;
}

/* A process that has died has told nothing for certain. */
bool is_explained_by(const Outcome &order) {
    if (order.has_died != outcome.has_died) { return false; }

    for (unsigned process = outcome.has_died; process <= kProcesses; process++) {
        if (!is_same_of(process, order, outcome)) { return false; }
    }

    return true;
}

unsigned operations_of(const Scene &scene, unsigned process) {
    unsigned n = 0;

    while (n < kOperations && scene.processes[process][n] != nullptr) {
        n++;
    }

    return n;
}

struct Order {
    unsigned process[kProcesses * kOperations];
    unsigned length;
    unsigned done[kProcesses];
};

void play_order(const Order &order, bool has_died) {
    unsigned done[kProcesses] = {};

    std::memcpy(memory, built, kMemoryBytes);
    outcome = {};

    for (unsigned i = 0; i < order.length; i++) {
        ordered_process = order.process[i];
        scene->processes[ordered_process][done[ordered_process]++]();
    }

    ordered_process = kProcesses;
    scene->end();
    outcome.has_died = has_died;

    if (!is_explained() && orders_count < kOrdersMax) { orders[orders_count++] = outcome; }
}

/* Plays all orders that begin so.  Whether what a process was doing when it died is done
 * is not known. */
void play_from(Order &order) {
    bool is_whole = true;

    for (unsigned process = 0; process < kProcesses; process++) {
        if (order.done[process] == operations_of(*scene, process)) { continue; }

        is_whole = is_whole && process == 0 && scene->is_mortal;
        order.process[order.length++] = process;
        order.done[process]++;
        play_from(order);
        order.done[process]--;
        order.length--;
    }

    if (!is_whole) { return; }

    if (order.done[0] == operations_of(*scene, 0)) { play_order(order, false); }

    if (scene->is_mortal) { play_order(order, true); }
}

} // namespace

bool is_explained() {
    for (size_t i = 0; i < orders_count; i++) {
        if (is_explained_by(orders[i])) { return true; }
    }

    return false;
}

unsigned processes_of(const Scene &scene) {
    unsigned n = 0;

    while (n < kProcesses && operations_of(scene, n) > 0) {
        n++;
    }

    return n;
}

void play_orders(const Scene &played, unsigned char *of, const unsigned char *as_built) {
    Order order = {};

    scene = &played;
    memory = of;
    built = as_built;
    orders_count = 0;
    play_from(order);
}

void print_notes() {
    for (unsigned process = 0; process <= kProcesses; process++) {
        fprintf(stderr, "%s%u:", process == 0 ? "        notes of " : ", ", process);

        for (unsigned i = 0; i < outcome.counts[process]; i++) {
            fprintf(stderr, " %llu", static_cast<unsigned long long>(outcome.notes[process][i]));
        }
    }

    fprintf(stderr, "%s\n", outcome.has_died ? ", died" : "");
}

uint64_t plain_load(const void *word, size_t bytes) {
    uint64_t value = 0;

    std::memcpy(&value, word, bytes);
    return value;
}

/* The same on memory that nobody else accesses. */
uint64_t play_plain(Kind kind, const Operands &operands) {
    const uint64_t old = plain_load(operands.word, operands.bytes);
    uint64_t next = old;

    switch (kind) {
    case Kind::kLoad:
        break;
    case Kind::kStore:
    case Kind::kExchange:
        next = operands.operand;
        break;
    case Kind::kAdd:
        next = old + operands.operand;
        break;
    case Kind::kSwap:
        next = old == operands.expected ? operands.operand : old;
        break;
    }

    if (next != old) { std::memcpy(operands.word, &next, operands.bytes); }

    return old;
}

} // namespace weak
