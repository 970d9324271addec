// Copyright (C) the limit_sliding authors

// Has calls fail that the module makes: of NGINX's memory, of events and threads,
// and of files. NGINX's own calls of the same functions do not pass here, for the
// module is bound to these when NGINX loads it.

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "orders.hpp"

namespace {

using faults::Kind;

struct Call {
    const char *name;
    Kind kind;
    long failure; // what it returns then
};

// None has more than four arguments, and each of them fits a register.
constexpr Call kCalls[] = {
    {"ngx_alloc", Kind::kModuleMemory, 0},
    {"ngx_alloc_chain_link", Kind::kModuleMemory, 0},
    {"ngx_array_push", Kind::kModuleMemory, 0},
    {"ngx_calloc", Kind::kModuleMemory, 0},
    {"ngx_conf_full_name", Kind::kModuleMemory, -1},
    {"ngx_create_pool", Kind::kModuleMemory, 0},
    {"ngx_create_temp_buf", Kind::kModuleMemory, 0},
    {"ngx_http_add_variable", Kind::kModuleMemory, 0},
    {"ngx_http_cleanup_add", Kind::kModuleMemory, 0},
    {"ngx_http_compile_complex_value", Kind::kModuleMemory, -1},
    {"ngx_http_complex_value", Kind::kModuleMemory, -1},
    {"ngx_http_get_variable_index", Kind::kModuleMemory, -1},
    {"ngx_list_push", Kind::kModuleMemory, 0},
    {"ngx_palloc", Kind::kModuleMemory, 0},
    {"ngx_pcalloc", Kind::kModuleMemory, 0},
    {"ngx_pnalloc", Kind::kModuleMemory, 0},
    {"ngx_pool_cleanup_add", Kind::kModuleMemory, 0},
    {"ngx_shared_memory_add", Kind::kModuleMemory, 0},
    {"ngx_slab_alloc", Kind::kModuleMemory, 0},
    {"ngx_slab_calloc", Kind::kModuleMemory, 0},
    {"ngx_thread_pool_add", Kind::kModuleMemory, 0},
    {"ngx_handle_read_event", Kind::kModuleCall, -1},
    {"ngx_handle_write_event", Kind::kModuleCall, -1},
    {"ngx_thread_task_post", Kind::kModuleCall, -1},
    {"memfd_create", Kind::kModuleCall, -1},
    {"fcntl", Kind::kModuleCall, -1},
    {"fdatasync", Kind::kModuleCall, -1},
    {"fstat", Kind::kModuleCall, -1},
    {"ftruncate", Kind::kModuleCall, -1},
    {"getentropy", Kind::kModuleCall, -1},
    {"open", Kind::kModuleCall, -1},
    {"pread", Kind::kModuleCall, -1},
    {"pwrite", Kind::kModuleCall, -1},
    {"stat", Kind::kModuleCall, -1},
};
constexpr size_t kCount = sizeof(kCalls) / sizeof(kCalls[0]);

using Function = long (*)(long, long, long, long);

Function functions[kCount];

// A lock is always freed.
bool frees(const char *name, long command, long lock) {
    return strcmp(name, "fcntl") == 0 && command == F_SETLK
           && reinterpret_cast<const flock *>(lock)->l_type == F_UNLCK;
}

template <size_t kCall>
long call(long a, long b, long c, long d) {
    constexpr Call kThis = kCalls[kCall];
    if (frees(kThis.name, b, c) || !faults::fails(kThis.kind)) {
        return functions[kCall](a, b, c, d);
    }
    return kThis.failure;
}

template <size_t... kAll>
constexpr std::array<Function, kCount> all_calls(std::index_sequence<kAll...>) {
    return {call<kAll>...};
}

constexpr auto kReplacements = all_calls(std::make_index_sequence<kCount>());

template <class T>
T *at(ElfW(Addr) address) {
    return reinterpret_cast<T *>(address);
}

void replace(void **slot, const char *name) {
    for (size_t i = 0; i < kCount; i++) {
        if (strcmp(kCalls[i].name, name) != 0) { continue; }
        functions[i] = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
        const auto page = static_cast<ElfW(Addr)>(getpagesize());
        const auto begin = reinterpret_cast<ElfW(Addr)>(slot) & ~(page - 1);
        mprotect(at<void>(begin), page, PROT_READ | PROT_WRITE);
        *slot = reinterpret_cast<void *>(kReplacements[i]);
    }
}

// Binds the functions that a module calls anew.
void bind(const link_map &module) {
    const ElfW(Sym) *symbols = nullptr;
    const char *names = nullptr;
    const ElfW(Rela) *first = nullptr;
    size_t size = 0;
    for (const ElfW(Dyn) *entry = module.l_ld; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            symbols = at<const ElfW(Sym)>(entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            names = at<const char>(entry->d_un.d_ptr);
            break;
        case DT_JMPREL:
            first = at<const ElfW(Rela)>(entry->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            size = entry->d_un.d_val;
            break;
        default:
            break;
        }
    }
    for (const auto *rela = first; rela != first + size / sizeof(*rela); rela++) {
        replace(at<void *>(module.l_addr + rela->r_offset),
                names + symbols[ELF64_R_SYM(rela->r_info)].st_name);
    }
}

} // namespace

// NGINX's way to load modules.
extern "C" void *dlopen(const char *path, int mode) {
    using Open = void *(*)(const char *, int);
    static const Open open = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));

    void *handle = open(path, mode);
    link_map *module = nullptr;
    if (handle != nullptr && path != nullptr && strstr(path, "limit_sliding") != nullptr
        && dlinfo(handle, RTLD_DI_LINKMAP, &module) == 0) {
        bind(*module);
    }
    return handle;
}
