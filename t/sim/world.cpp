/* Copyright (C) the limit_sliding authors */

#include "world.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <queue>
#include <string>
#include <vector>

#include "nginx.hpp"

namespace sim {

Pace pace;

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
    uint64_t busy_until_us;
    uint64_t stalled_us;
    uint64_t alarm_us; /* when the worker's clock is set again */
    bool was_stopped;
    uint64_t hash;
    bool broken;
    std::priority_queue<Happening> happenings;
    std::vector<std::function<void()>> woken;
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

/* Lets the world go on until then, without the worker. */
void elapse(uint64_t until_us) {
    while (!world.happenings.empty() && world.happenings.top().at_us <= until_us) {
        auto what = world.happenings.top().what;
        world.now_us = std::max(world.now_us, world.happenings.top().at_us);
        world.happenings.pop();
        what();
    }
    world.now_us = std::max(world.now_us, until_us);
}

void be_busy(uint64_t us) {
    world.stalled_us += us;
    elapse(world.now_us + us);
}

/* Returns when the worker has something to do next, if nothing wakes it. */
uint64_t next_turn_us() {
    if (!world.woken.empty()) { return world.busy_until_us; }

    return std::max({next_timer_us(), world.alarm_us, world.busy_until_us});
}

/* One turn of the event loop: as NGINX has them, first events of connections, then
 * timers, then what was posted.  A process that was stopped finds no events at first, as
 * the system ends its wait for them. */
void turn() {
    if (world.now_us >= world.alarm_us) {
        update_clock();
        world.alarm_us = world.now_us + pace.clock_age_us;
    }

    if (!world.was_stopped || chance(500)) {
        auto woken = std::move(world.woken);
        world.woken.clear();
        for (auto &what : woken) {
            what();
        }
    }

    world.was_stopped = false;
    run_timers();
    if (chance(pace.long_turns)) {
        count("long turns");
        be_busy(below(pace.turn_most_us));
    }

    run_posted();
}

} // namespace

uint64_t below(uint64_t n) { return random_number() % n; }
bool chance(unsigned per_mille) { return below(1000) < per_mille; }
uint64_t now_us() { return world.now_us; }
void wake(std::function<void()> what) { world.woken.push_back(std::move(what)); }

void stall(uint64_t us) {
    world.busy_until_us = std::max(world.busy_until_us, world.now_us) + us;
    world.stalled_us += us;
    world.was_stopped = true;
}

void end_stalls() { world.busy_until_us = std::min(world.busy_until_us, world.now_us); }

void update_clock() { set_clock(world.now_us); }

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
    pace = {};
    begin_nginx();
    update_clock();
}

void end_world() {
    world.happenings = {};
    world.woken.clear();
}

void run_for(uint64_t us) {
    const uint64_t until_us = world.now_us + us;
    while (world.now_us < until_us) {
        const uint64_t next_us = std::max(next_turn_us(), world.now_us);
        const uint64_t happens_us
            = world.happenings.empty() ? UINT64_MAX : world.happenings.top().at_us;
        elapse(std::min({next_us, happens_us, until_us}));
        if (world.now_us >= next_turn_us()) { turn(); }
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
