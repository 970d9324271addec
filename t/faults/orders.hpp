// Copyright (C) the limit_sliding authors

// What a test orders of the library that is preloaded into NGINX.

#pragma once

#include <stdint.h>

namespace faults {

// The calls that are counted, and of which one fails.
enum class Kind : uint64_t {
    kAllocation,   // of malloc() and its like, whoever asks
    kModuleMemory, // what needs memory of NGINX, asked for by the module
    kModuleCall,   // what may fail with an errno, called by the module
};

// What the test writes and reads.
struct LimitWrites {
    uint64_t fail_at; // which call fails, from 1 on; 0: none
    uint64_t pid;     // whose; 0: all processes'
    uint64_t count;   // how many there were since
    Kind kind;
    uint64_t error; // the errno of a kModuleCall
};

// True if this call is to fail. It has set errno then.
bool fails(Kind kind);

} // namespace faults
