/* Copyright (C) the limit_sliding authors */

/* The module's own scripts, run by Lua as Redis does. */

#pragma once

#include "store.hpp"

namespace sim {

/* The server that a script runs in. */
struct ScriptHost {
    Store *store;
    int64_t now_us; /* its clock */
    uint64_t run;   /* its run_id */
};

/* Makes the script known by its digest, which is returned. */
std::string add_script(const std::string &text);

/* Runs the script of that digest, which is known. */
Value run_script(const std::string &digest, ScriptHost host, const Arguments &keys,
                 const Arguments &args);

} // namespace sim
