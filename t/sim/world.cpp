/* Copyright (C) the limit_sliding authors */

#include "world.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <queue>
#include <string>

#include "nginx.hpp"

namespace sim {

namespace {

struct Happening {
    uint64_t at_us;
    uint64_t number;
    std::function<void()> what;

    bool operator<(const Happening &other) const {
        return at_us != other.at_us ? at_us > other.at_us : number > other.number;
    }
};

struct World {
    uint64_t seed;
    uint64_t state;
    uint64_t now_us;
    uint64_t number;
    uint64_t stall_us;
    uint64_t stalled_us;
    uint64_t hash;
    bool broken;
    std::priority_queue<Happening> happenings;
};

World world;
std::map<std::string, uint64_t> counts;

const bool is_traced = getenv("TRACE") != nullptr;

uint64_t random_number() {
    uint64_t z = world.state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* One turn of the event loop: as NGINX has them, first events of connections, then
 * timers, then what was posted. */
void turn(uint64_t until_us) {
    uint64_t next = world.happenings.empty() ? until_us : world.happenings.top().at_us;
    next = std::min({next, until_us, next_timer_us()});
    world.now_us = std::max(world.now_us, next) + world.stall_us;
    world.stalled_us += world.stall_us;
    world.stall_us = 0;

    set_clock(world.now_us);
    while (!world.happenings.empty() && world.happenings.top().at_us <= world.now_us) {
        auto what = world.happenings.top().what;
        world.happenings.pop();
        what();
    }

    run_timers();
    run_posted();
}

} // namespace

uint64_t below(uint64_t n) { return random_number() % n; }
bool chance(unsigned per_mille) { return below(1000) < per_mille; }
uint64_t now_us() { return world.now_us; }
void stall(uint64_t us) { world.stall_us += us; }
uint64_t stalled_us() { return world.stalled_us; }
uint64_t trace_hash() { return world.hash; }
bool is_broken() { return world.broken; }
void count(const char *what) { counts[what]++; }

void print_counts() {
    for (auto &[what, n] : counts) {
        printf("%12llu %s\n", static_cast<unsigned long long>(n), what.c_str());
    }
}

void after(uint64_t us, std::function<void()> what) {
    world.happenings.push({world.now_us + us, world.number++, std::move(what)});
}

void begin_world(uint64_t seed) {
    world = {};
    world.seed = seed;
    world.state = seed * 0xd1342543de82ef95 + 1;
    world.now_us = 1000000000 + below(2000000);
    begin_nginx();
    set_clock(world.now_us);
}

void end_world() { world.happenings = {}; }

void run_for(uint64_t us) {
    const uint64_t until_us = world.now_us + us;
    while (world.now_us < until_us) {
        turn(until_us);
    }
}

void trace(const char *format, ...) {
    char line[600];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);

    for (const char *p = line; *p != '\0'; p++) {
        world.hash = (world.hash ^ static_cast<unsigned char>(*p)) * 0x100000001b3;
    }

    world.hash ^= world.now_us;
    if (is_traced) {
        printf("%10.3f %s\n", static_cast<double>(world.now_us - 1000000000) / 1000, line);
    }
}

void broken(const char *format, ...) {
    char line[600];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);

    if (!world.broken) {
        printf("seed %llu: %s, at %.3f ms\n", static_cast<unsigned long long>(world.seed), line,
               static_cast<double>(world.now_us - 1000000000) / 1000);
    }

    world.broken = true;
}

} // namespace sim
