/* Copyright (C) the limit_sliding authors */

/* What a seed draws: the configuration, the network, the traffic and the faults. */

#include "scenario.hpp"

#include <algorithm>

#include "traffic.hpp"
#include "world.hpp"

namespace sim {

using namespace limit_sliding;

Guest *guest;

namespace {

/* After faults are over, Redis decides again: a probe is due within a breaker's interval,
 * and is answered unless a server is still to be left alone, twice. */
constexpr uint64_t kRecoveryUs = 4000000;

/* What the seed does to the servers. */
struct Drawn {
    bool is_bounded = true;
    bool has_lies = false; /* a map of slots that is none, say, is believed for a while */
    bool is_calm;          /* nothing is worse than slots that move */
    uint64_t length_us;
};

Plan draw_plan() {
    static constexpr Algorithm kAll[] = {Algorithm::kCounter, Algorithm::kLog, Algorithm::kFixed,
                                         Algorithm::kTokenBucket, Algorithm::kLeakyBucket};
    Plan plan{};
    plan.policy.algorithm = kAll[below(5)];
    plan.policy.window_ms = between(100, 2000);
    plan.limit = between(1, chance(500) ? 10 : 60);
    if (plan.policy.algorithm == Algorithm::kLeakyBucket) {
        plan.policy.burst = static_cast<uint32_t>(below(20));
    }
    plan.connect_timeout_ms = between(5, 100);
    plan.timeout_ms = between(5, 60);
    plan.nservers = 1;
    const Algorithm algorithm = plan.policy.algorithm;
    if (chance(250) && Leases::can_serve(plan.policy)) {
        plan.lease = chance(500) ? kLeaseAuto : static_cast<uint32_t>(between(1, 20));
    } else if (algorithm != Algorithm::kLog && chance(200)) {
        plan.sync_ms = between(10, 300);
    } else if (chance(200) && algorithm != Algorithm::kLog) {
        plan.settles = true;
    }

    const uint64_t topology = below(10);
    if (topology < 3) {
        plan.topology = Topology::kCluster;
        plan.nservers = between(2, 4);
    } else if (topology < 5) {
        plan.topology = Topology::kSentinel;
        plan.nservers = 2;
        plan.nsentinels = between(1, 3);
    }
    if (plan.nsentinels == 3 && chance(500)) { plan.stale = plan.nservers + between(1, 3); }

    plan.nmachines = between(1, 2);
    plan.nworkers = between(1, 2);
    plan.nkeys = between(1, 3);
    if (chance(300)) { plan.ahead_us = static_cast<int64_t>(below(2000000000)) - 1000000000; }
    return plan;
}

void draw_weather(const Plan &plan) {
    weather = {};
    weather.delay_least_us = between(20, 300);
    weather.delay_most_us
        = weather.delay_least_us + below(chance(200) ? plan.timeout_ms * 600 : 2000) + 1;
    if (chance(300)) { weather.pieces = static_cast<unsigned>(between(50, 700)); }

    if (chance(200)) { weather.partial = static_cast<unsigned>(between(20, 400)); }

    if (chance(50)) { weather.no_socket = static_cast<unsigned>(between(50, 700)); }
}

/* A worker that is busy for long, or whose clock is set seldom, is no fault of Redis. */
void draw_pace(const Plan &plan) {
    if (chance(200)) {
        pace.stops = static_cast<unsigned>(between(10, 300));
    } else if (chance(200)) {
        pace.long_turns = static_cast<unsigned>(between(5, 300));
        pace.turn_most_us = plan.timeout_ms * between(500, 4000);
    } else if (chance(200)) {
        pace.clock_age_us = between(1, 100) * 1000;
    }

    trace("timeout %d, turns of %d us, clock of %d us", static_cast<int>(plan.timeout_ms),
          static_cast<int>(pace.turn_most_us), static_cast<int>(pace.clock_age_us));
    set_timer_resolution(pace.clock_age_us / 1000);
}

void draw_traffic(Site &drawn, Traffic &of, uint64_t length_us) {
    const uint64_t n = between(10, 120);
    const bool pairs = drawn.plan.nkeys > 1 && drawn.plan.sync_ms == 0 && chance(300);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at_us = below(length_us);
        const uint64_t burst = chance(100) ? between(2, 20) : 1;
        Worker *worker = drawn.workers[below(drawn.workers.size())].get();
        const auto key = static_cast<unsigned>(below(drawn.plan.nkeys));
        const bool is_pair = pairs && chance(500);
        after(at_us, [&of, worker, key, burst, is_pair] {
            for (uint64_t j = 0; j < burst; j++) {
                wake([&of, worker, key, is_pair] { of.come(*worker, key, is_pair); });
            }
        });
    }
}

/* Draws a fault, and when it is to begin. */
void draw_fault(Site &in, Drawn &drawn) {
    Server *server = in.servers[below(in.servers.size())].get();
    const uint64_t at_us = below(drawn.length_us);
    const uint64_t lasts_us = between(1000, chance(300) ? 3000000 : 200000);
    if (in.plan.topology != Topology::kStandalone && chance(300)) {
        drawn.is_calm = drawn.is_calm && in.plan.topology == Topology::kCluster;
        after(at_us, [&in, keeps = chance(500)] {
            if (in.plan.topology == Topology::kCluster) {
                in.reshard();
            } else {
                in.fail_over(keeps);
            }
        });
        return;
    }

    const uint64_t kind = below(16);
    if (kind == 12) {
        after(at_us, [lasts_us] { stall(lasts_us / 10); });
        return;
    }

    drawn.is_calm = false;
    if (kind < 9) {
        const auto fault = static_cast<Fault>(kind + 1);
        if (fault == Fault::kGarbage) { drawn.has_lies = true; }

        if (fault == Fault::kExtra) { drawn.is_bounded = false; }

        after(at_us, [server, fault, lasts_us] { server->suffer(fault, lasts_us); });
        return;
    }

    if (kind < 12) {
        after(at_us, [server, keeps = kind != 9] { server->restart(keeps); });
    } else if (kind == 13) {
        const auto step_us = static_cast<int64_t>(below(3000000));
        const bool is_back = chance(300);
        const bool is_timed_here = in.plan.sync_ms != 0 || in.plan.lease != 0;
        if (is_back || is_timed_here || in.plan.nservers > 1) { drawn.is_bounded = false; }

        after(at_us,
              [server, step_us, is_back] { server->step_clock(is_back ? -step_us : step_us); });
    } else if (kind == 14) {
        after(at_us, [] { step_time_of_day(static_cast<int64_t>(below(7200)) - 3600); });
    } else {
        after(at_us, [] { set_failing_allocations(static_cast<unsigned>(between(1, 300))); });
        after(at_us + lasts_us, [] { set_failing_allocations(0); });
    }
}

/* Lets all faults end, and sees that Redis decides again. */
void recover(Site &in, Traffic &of, unsigned tries) {
    const Weather clear{20, 200, 0, 0, 0};
    tampering = nullptr;
    set_failing_allocations(0);
    weather = clear;
    pace.long_turns = 0;
    pace.stops = 0;
    end_stalls();
    for (auto &server : in.servers) {
        server->heal();
    }

    of.set_patient();
    run_for(kRecoveryUs);
    for (size_t i = 0; i < in.workers.size(); i++) {
        const uint64_t admitted = of.admitted();
        for (unsigned n = 0; n < tries && of.admitted() == admitted; n++) {
            wake([&, i] { of.come(*in.workers[i], 1000 + static_cast<unsigned>(i), false); });
            run_for(n == 0 ? 100000 : 1000000);
        }

        if (of.admitted() == admitted) { broken("redis does not decide again"); }
    }
}

} // namespace

/* Sees that with "sync=" nobody asks about keys that nobody uses, once units that had no room
 * are told. */
static void check_rest(const Plan &plan, const Traffic &of) {
    if (plan.sync_ms == 0) { return; }

    /* units of two intervals are sent again, and a leaky bucket may take one in an interval */
    const uint64_t ahead = 2 * plan.limit * plan.sync_ms / plan.policy.window_ms + 1;
    const bool is_slow = plan.policy.algorithm == Algorithm::kLeakyBucket;
    run_for(4 * (plan.policy.window_ms + plan.sync_ms) * 1000);
    run_for(is_slow ? ahead * plan.sync_ms * 1000 : 0);
    const uint64_t runs = of.runs();
    run_for(4 * plan.sync_ms * 1000);
    if (of.runs() != runs) { broken("keys are asked about that nobody uses"); }
}

static void trace_plan(const Plan &plan) {
    static const char *const topologies[] = {"standalone", "sentinel", "cluster"};
    static const char *const algorithms[]
        = {"counter", "log", "fixed", "token_bucket", "leaky_bucket"};
    trace(
        "%s of %zu, %zu machines of %zu workers, %s of %d in %d ms, burst %u, lease %d, sync %d%s",
        topologies[static_cast<size_t>(plan.topology)], plan.nservers, plan.nmachines,
        plan.nworkers, algorithms[static_cast<size_t>(plan.policy.algorithm)],
        static_cast<int>(plan.limit), static_cast<int>(plan.policy.window_ms), plan.policy.burst,
        static_cast<int>(plan.lease), static_cast<int>(plan.sync_ms),
        plan.settles ? ", settles" : "");
}

Outcome run_seed(uint64_t seed) {
    begin_world(seed);
    const Plan plan = draw_plan();
    trace_plan(plan);
    draw_weather(plan);
    draw_pace(plan);
    {
        Site in(plan);
        Traffic of(in);
        traffic = &of;
        Drawn drawn;
        const uint64_t patience_us = std::min(plan.timeout_ms, plan.connect_timeout_ms) * 1000 / 16;
        drawn.is_calm = weather.delay_most_us < patience_us && weather.partial == 0
                        && weather.pieces == 0 && weather.no_socket == 0 && guest == nullptr
                        && pace.long_turns == 0 && pace.stops == 0;
        /* A worker that is late spends units of its lease, or of sync=, by an old clock. */
        drawn.is_bounded
            = (pace.long_turns == 0 && pace.stops == 0) || (plan.lease == 0 && plan.sync_ms == 0);
        drawn.has_lies = guest != nullptr;
        tampering = guest;
        drawn.length_us = plan.policy.window_ms * between(500, 4000);
        draw_traffic(in, of, drawn.length_us);
        if (guest != nullptr) { guest->enter(in, drawn.length_us); }

        for (uint64_t n = chance(300) ? 0 : between(1, 5); n > 0; n--) {
            draw_fault(in, drawn);
        }

        run_for(drawn.length_us);
        run_for((plan.timeout_ms + plan.connect_timeout_ms) * 1000);
        if (drawn.is_calm && of.unanswered() != 0) {
            broken("%zu requests were not answered", static_cast<size_t>(of.unanswered()));
        }

        count(drawn.is_calm ? "calm seeds" : "other seeds");
        const bool is_slow = drawn.has_lies || plan.stale != 0 || pace.clock_age_us != 0;
        recover(in, of, is_slow ? 4 : 1);
        if (guest != nullptr) { guest->check(); }

        check_rest(plan, of);
        of.check(drawn.is_bounded && !drawn.has_lies);
        in.end();
        traffic = nullptr;
    }
    end_world();
    forget_connections();
    return {is_broken(), trace_hash()};
}

} // namespace sim
