// Copyright (C) the limit_sliding authors

// A library to be preloaded into NGINX, by which one allocation fails: the n-th
// since a test said so, of all processes together. Who failed, and where a
// process crashed, goes to stderr, which is NGINX's error log. Other calls that
// may fail are in calls.cpp.
//
// ALLOC_FAULT is the path of a file with the orders, which the test shares with
// the processes. Without it, nothing ever fails.

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "orders.hpp"

extern "C" {
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
}

namespace {

using faults::Kind;
using faults::LimitWrites;

constexpr int kDepth = 24;

LimitWrites *orders;
__thread bool busy;

void tell(const char *what) {
    void *frames[kDepth];
    busy = true;
    const int depth = backtrace(frames, kDepth);
    (void)!write(STDERR_FILENO, what, strlen(what));
    backtrace_symbols_fd(frames + 1, depth - 1, STDERR_FILENO);
    (void)!write(STDERR_FILENO, "alloc: end\n", 11);
    busy = false;
}

void crashed(int) {
    tell("alloc: crash\n"); // the handler is of one time only
}

__attribute__((constructor)) void begin() {
    const char *path = getenv("ALLOC_FAULT");
    const int fd = path != nullptr ? open(path, O_RDWR) : -1;
    if (fd < 0) { return; }

    // The first backtrace loads a library.
    void *frame;
    backtrace(&frame, 1);

    struct sigaction action = {};
    action.sa_handler = crashed;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    constexpr int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    for (const int signal : signals) {
        sigaction(signal, &action, nullptr);
    }

    void *memory = mmap(nullptr, sizeof(LimitWrites), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED) { orders = static_cast<LimitWrites *>(memory); }
}

// A process that ends has counters of coverage written, which needs memory.
__attribute__((destructor)) void end() { orders = nullptr; }

bool fails() { return faults::fails(Kind::kAllocation); }

} // namespace

bool faults::fails(Kind kind) {
    if (orders == nullptr || busy || orders->kind != kind) { return false; }
    const uint64_t at = __atomic_load_n(&orders->fail_at, __ATOMIC_ACQUIRE);
    const uint64_t pid = __atomic_load_n(&orders->pid, __ATOMIC_RELAXED);
    if (at == 0 || (pid != 0 && pid != static_cast<uint64_t>(getpid()))) { return false; }
    if (__atomic_add_fetch(&orders->count, 1, __ATOMIC_RELAXED) != at) { return false; }
    tell("alloc: fails\n");
    errno = kind == Kind::kModuleCall ? static_cast<int>(orders->error) : ENOMEM;
    return true;
}

extern "C" {

void *malloc(size_t size) { return fails() ? nullptr : __libc_malloc(size); }

void *calloc(size_t count, size_t size) { return fails() ? nullptr : __libc_calloc(count, size); }

void *realloc(void *old, size_t size) { return fails() ? nullptr : __libc_realloc(old, size); }

void *memalign(size_t alignment, size_t size) {
    return fails() ? nullptr : __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return fails() ? nullptr : __libc_memalign(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size) {
    void *memory = fails() ? nullptr : __libc_memalign(alignment, size);
    if (memory == nullptr) { return ENOMEM; }
    *result = memory;
    return 0;
}

// A module that is unloaded writes such counters, too.
int dlclose(void *handle) {
    using Close = int (*)(void *);
    static const Close close = reinterpret_cast<Close>(dlsym(RTLD_NEXT, "dlclose"));
    busy = true;
    const int result = close(handle);
    busy = false;
    return result;
}

// Zones of shared memory.
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    if ((flags & MAP_SHARED) != 0 && fails()) { return MAP_FAILED; }
    return reinterpret_cast<void *>(
        syscall(SYS_mmap, address, length, protection, flags, fd, offset));
}

} // extern "C"
