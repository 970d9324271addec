/* Copyright (C) the limit_sliding authors */

/*
 * Processes that take from one zone in shared memory as fast as they can, and
 * write down what they were told, each on a desk of its own.  They may be
 * killed and stopped at any instruction.
 */

#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"
#include "model.hpp"

using namespace limit_sliding;

namespace torture {

/* What a round is like. */
struct Setting {
    std::string name;
    Policy policy;
    uint32_t limit;
    uint32_t cost_max;
    uint64_t keys;       /* whose limit is watched */
    uint64_t other_keys; /* that crowd the zone */
    bool evicts;         /* the zone does, having no room for all */
    size_t zone_bytes;
    unsigned processes;
    unsigned kill_every_us; /* 0: never */
    unsigned stop_every_us; /* 0: never */
    unsigned stopped;       /* processes at a time, at most */
    unsigned stop_us;       /* at most, each time */
    bool is_even;           /* always the same are stopped, and so long */
    unsigned skew_ms;       /* of a worker's clock, at most, to either side */
    double seconds;
    uint64_t seed;
};

/* Of a request the time is between both by the clock of any worker. */
struct Note {
    uint32_t before_ms; /* since the round began */
    uint32_t after_ms;
    uint32_t key;
    uint16_t cost;
    uint16_t is_admitted;
};

/* A process whose desk is full goes on without: see full_ms. */
constexpr size_t kNotes = 1 << 17;

/* Shared memory of one process, and of those that follow it when it dies. */
struct Desk {
    std::atomic<uint64_t> calls;
    std::atomic<uint64_t> notes;
    std::atomic<uint64_t> doing;     /* in a call: its number of notes before, + 1 */
    std::atomic<uint64_t> before_ms; /* of that call */
    std::atomic<uint64_t> key;
    std::atomic<uint64_t> cost;
    std::atomic<uint64_t> full_ms; /* when there was no room for notes; or 0 */
    Note note[kNotes];
};

/* A call in which a process was killed. */
struct Loss {
    uint64_t before_ms;
    uint64_t after_ms;
    uint64_t key;
    uint64_t cost;
};

class Workers {
public:
    explicit Workers(const Setting &setting);
    ~Workers();

    /* Runs the round; returns what hung, or "". */
    std::string run();

    /* To be read after it. */
    const Desk &desk(unsigned i) const { return desks_[i]; }
    const std::vector<Loss> &losses() const { return losses_; }
    uint64_t calls() const;
    uint64_t kills() const { return kills_; }
    uint64_t stops() const { return stops_; }
    uint64_t now_ms() const;
    Zone *zone() { return zone_; }
    Claim claim(uint64_t key, uint32_t cost) const;

private:
    struct Process {
        pid_t pid = 0;
        bool is_dying = false;
        uint64_t stopped_until_ns = 0; /* 0: it runs */
    };

    Workers(const Workers &) = delete;

    void start(unsigned i);
    [[noreturn]] void work(unsigned i);
    void decide(Desk *desk, uint64_t random, uint64_t skew_ms);
    uint64_t draw_skew(uint64_t random) const;
    void write_down(Desk *desk, uint64_t before_ms, const Claim &claim, bool is_admitted);
    void bother();
    void stop_some();
    void go_on(uint64_t until_ns);
    void kill_one();
    void replace_dead();
    void kill_all();
    void note_loss(unsigned i);
    std::string end();
    std::string stack_of(const Process &process, unsigned i);

    Setting setting_;
    uint64_t base_ms_;
    uint64_t random_;
    Zone *zone_;
    Desk *desks_;
    std::atomic<bool> *is_over_;
    std::vector<Process> processes_;
    std::vector<Loss> losses_;
    uint64_t kills_ = 0;
    uint64_t stops_ = 0;
    unsigned born_ = 0;
};

} // namespace torture
