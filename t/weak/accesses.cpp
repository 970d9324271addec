/* Copyright (C) the limit_sliding authors */

#include "accesses.hpp"

#include <cstdio>
#include <cstring>

#include "checker.hpp"

namespace weak {

namespace {

constexpr size_t kAccesses = 4096;
Count counts[kAccesses];

const char *weak_name;
size_t weak_length;
std::memory_order weak_order;

constexpr size_t kNameMax = 256;

void print_name(const Access &access, char *name) {
    snprintf(name, kNameMax, "%s:%d", access.file, access.line);
}

bool is_same(const Access &a, const Access &b) {
    return a.file == b.file && a.line == b.line && a.kind == b.kind;
}

constexpr std::memory_order kOrders[]
    = {std::memory_order_relaxed, std::memory_order_acquire, std::memory_order_release,
       std::memory_order_acq_rel, std::memory_order_seq_cst};

} // namespace

Count &count_of(const Access &access) {
    size_t i = (reinterpret_cast<uintptr_t>(access.file) / 8 + static_cast<size_t>(access.line) * 61
                + static_cast<size_t>(access.kind))
               % kAccesses;

    while (counts[i].access.file != nullptr && !is_same(counts[i].access, access)) {
        i = (i + 1) % kAccesses;
    }

    if (counts[i].access.file == nullptr) {
        char name[kNameMax];

        print_name(access, name);
        counts[i].access = access;
        counts[i].is_weak = weak_name != nullptr && std::strlen(name) == weak_length
                            && std::strncmp(name, weak_name, weak_length) == 0;
    }

    return counts[i];
}

Access as_played(const Count &count, const Access &access) {
    Access played = access;

    if (count.is_weak) {
        played.order = weak_order;
        played.failure = failure_of(weak_order);
    }

    return played;
}

const char *name_of(Kind kind) {
    static const char *const names[] = {"load", "store", "exchange", "add", "swap"};

    return names[static_cast<int>(kind)];
}

const char *name_of(std::memory_order order) {
    static const char *const names[]
        = {"relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst"};

    return names[static_cast<int>(order)];
}

bool weaken(const char *name) {
    weak_name = name;
    weak_length = std::strcspn(name, "=");

    for (std::memory_order order : kOrders) {
        if (name[weak_length] == '=' && std::strcmp(name + weak_length + 1, name_of(order)) == 0) {
            weak_order = order;
            return true;
        }
    }

    return false;
}

void print_accesses() {
    for (const Count &count : counts) {
        char name[kNameMax];

        if (count.times == 0) { continue; }

        print_name(count.access, name);
        printf("%s %s %s %llu\n", name, name_of(count.access.kind), name_of(count.access.order),
               static_cast<unsigned long long>(count.times));
    }
}

} // namespace weak
