/* Copyright (C) the limit_sliding authors */

/*
 * Plays all scenes, or those whose names contain a text:
 *
 *     weak [--percent=n] [--weaken=file:line=order] [--accesses] [--loud] [text]
 *
 * --weaken gives one access of the core that order.  Fails if a scene does, and stops
 * there.
 */

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "scenes.hpp"

namespace {

double seconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();

    return std::chrono::duration<double>(now).count();
}

bool takes(const char *argument, const char *name, const char **value) {
    const size_t length = std::strlen(name);

    if (std::strncmp(argument, name, length) != 0) { return false; }

    *value = argument + length;
    return true;
}

} // namespace

int main(int argc, char **argv) {
    const char *text = "";
    const char *value;
    unsigned percent = 100;
    bool is_loud = false;
    bool prints_accesses = false;

    for (int i = 1; i < argc; i++) {
        if (takes(argv[i], "--percent=", &value)) {
            percent = static_cast<unsigned>(std::atoi(value));
        } else if (takes(argv[i], "--weaken=", &value)) {
            if (!weak::weaken(value)) {
                fprintf(stderr, "\"%s\" is not \"file:line=order\"\n", value);
                return 2;
            }
        } else if (takes(argv[i], "--accesses", &value)) {
            prints_accesses = true;
        } else if (takes(argv[i], "--loud", &value)) {
            is_loud = true;
        } else {
            text = argv[i];
        }
    }

    unsigned played = 0;

    for (const auto &part : {table_scenes(), ring_scenes(), lease_scenes(), overrides_scenes(),
                             ban_scenes(), cache_scenes(), hold_scenes()}) {
        for (const weak::Scene &scene : part) {
            if (std::strstr(scene.name, text) == nullptr) { continue; }

            const double begin = seconds();
            const weak::Result result = weak::play(scene, percent, is_loud);

            played++;
            printf("%-6s  %-58s %8llu executions %5.1f s\n", result.holds ? "holds" : "FAILED",
                   scene.name, static_cast<unsigned long long>(result.executions),
                   seconds() - begin);
            fflush(stdout);

            if (!result.holds) { return 1; }
        }
    }

    if (prints_accesses) { weak::print_accesses(); }

    if (played == 0) { fprintf(stderr, "no scene is named \"%s\"\n", text); }

    return played == 0 ? 2 : 0;
}
