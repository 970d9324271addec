/* Copyright (C) the limit_sliding authors */

#include "holds.hpp"

#include <algorithm>
#include <map>

#include "core/table/zone.hpp"
#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/shares/claim_units.hpp"
#include "redis/shares/unit_holder.hpp"
#include "traffic.hpp"
#include "world.hpp"

namespace sim {

using namespace limit_sliding;

namespace {

/* The life of a heartbeat, after which Redis declares its holder dead. */
constexpr uint64_t kLifeUs = 3000000;

/* A worker, as the scene sees it. */
struct Watched {
    Worker *worker;
    Cut cut;
    std::map<unsigned, uint64_t> beats_us; /* when a server ran its last heartbeat */

    bool is_dead(const Server &server) const {
        const auto beat = beats_us.find(server.number());
        return beat != beats_us.end() && now_us() - beat->second >= kLifeUs;
    }
};

/* A request. */
struct Flight {
    Watched *of;
    std::string key;
    Waiter waiter{};
    Claim claim{};
    RemoteClaim remote{};
    bool is_waiting = false;
    bool is_running = false;
    bool was_dead = false; /* it ran while its worker was declared dead, or was late to report */
    int64_t began_ms = 0;  /* by the clocks of servers, which are equal here */

    void told();
};

/* The scene of a seed. */
class Scene {
public:
    explicit Scene(Site &of);

    void come(Watched &watched, const std::string &key, uint64_t cost, uint64_t lasts_us);
    void told(Flight &flight);
    void begin_old();
    void draw(uint64_t length_us);
    void recover();
    void check_day();
    void check_end();
    void fail_over(bool keeps);

private:
    void run(Flight &flight);
    void end(Flight &flight);
    void mark_dead(Server &server);
    void note(const Server &server, const Arguments &command, const Value &reply);
    void draw_fault(uint64_t length_us);

    Site &site_;
    std::list<Watched> watched_;
    std::list<Flight> flights_;
    ScriptWatch watch_;
    uint64_t nadmitted_ = 0;
};

Scene *scene;

void Flight::told() { scene->told(*this); }

bool is_within(const void *p, const void *object, size_t bytes) {
    const auto *at = static_cast<const char *>(p), *begin = static_cast<const char *>(object);
    return begin != nullptr && at >= begin && at < begin + bytes;
}

Scene::Scene(Site &of) : site_(of) {
    for (auto &worker : site_.workers) {
        watched_.emplace_back().worker = worker.get();
    }

    watch_.before = [this](Server &server) { mark_dead(server); };
    watch_.after = [this](Server &server, const Arguments &command, const Value &reply) {
        note(server, command, reply);
    };
    script_watch = &watch_;
    find_cut = [this](const ngx_peer_connection_t *peer) -> Cut * {
        for (Watched &one : watched_) {
            const Nodes &nodes = one.worker->redis.client.nodes;
            const size_t bytes = nodes.watch != nullptr ? sizeof(SentinelNode) : sizeof(Node);
            if (is_within(peer, nodes.node, bytes) || is_within(peer, nodes.watch, bytes)) {
                return &one.cut;
            }
        }
        return nullptr;
    };
}

void Scene::come(Watched &watched, const std::string &key, uint64_t cost, uint64_t lasts_us) {
    Flight &flight = flights_.emplace_back();
    Worker &worker = *watched.worker;
    flight.of = &watched;
    flight.key = key;
    flight.claim.zone = worker.machine->table;
    flight.claim.policy = worker.zone.policy;
    flight.claim.hash = flight.claim.zone->hash(flight.key);
    flight.claim.limit = site_.plan.limit;
    flight.claim.cost = cost;
    flight.claim.remote = &flight.remote;
    flight.remote.zone = &worker.zone;
    flight.remote.key = to_str(flight.key);
    flight.remote.asked = flight.claim.policy;
    init_event<&Flight::told>(flight.waiter.event, flight);

    after(lasts_us, [this, &flight] { wake([this, &flight] { end(flight); }); });
    const std::optional<WaitResult> result = take_units(flight.claim, &flight.waiter);
    if (!result.has_value()) {
        trace("%s asks for %d", flight.key.c_str(), static_cast<int>(cost));
        flight.is_waiting = true;
        return;
    }

    switch (*result) {
    case WaitResult::kAdmitted:
        run(flight);
        break;
    case WaitResult::kRejected:
        count("units known to be refused");
        break;
    case WaitResult::kFailed:
        count("units of no redis");
    }
}

void Scene::told(Flight &flight) {
    if (!flight.is_waiting) {
        broken("holds: %s is told twice, or after it has left", flight.key.c_str());
    }

    flight.is_waiting = false;
    switch (flight.waiter.result) {
    case WaitResult::kAdmitted:
        run(flight);
        break;
    case WaitResult::kRejected:
        count("units refused");
        break;
    case WaitResult::kFailed:
        count("units not answered");
    }
}

/* The units of requests that run never exceed the limit, but by those of workers that were declared
 * dead. */
void Scene::run(Flight &flight) {
    flight.is_running = true;
    flight.began_ms = site_.master().clock_us() / 1000;
    nadmitted_++;
    count("units taken");
    uint64_t sum = 0;
    for (const Flight &other : flights_) {
        if (other.is_running && !other.was_dead && other.key == flight.key) {
            sum += other.claim.cost;
        }
    }

    trace("%s runs, %d of %d", flight.key.c_str(), static_cast<int>(sum),
          static_cast<int>(site_.plan.limit));
    if (sum > site_.plan.limit) {
        broken("holds: %s: %zu units run, the limit is %zu", flight.key.c_str(),
               static_cast<size_t>(sum), static_cast<size_t>(site_.plan.limit));
    }
    count(sum == site_.plan.limit ? "holds that reached their limits" : "other holds");
}

void Scene::end(Flight &flight) {
    if (flight.is_waiting) {
        count("waits for units that ended");
        leave_ask(&flight.waiter);
        flight.is_waiting = false;
    }

    /* it may have been told, and not know yet */
    release_units(flight.remote);
    flight.is_running = false;
}

/* Returns true if the server may have lost the units of a request, and its worker has not reported
 * them in the time after which the server grants units again. */
bool is_late(Server &server, const Flight &flight) {
    const int64_t now_ms = server.clock_us() / 1000;
    const Value marker = server.store.run({"GET", "p:holders"}, now_ms);
    const int64_t since_ms = strtoll(marker.text.c_str(), nullptr, 10);
    if (since_ms < flight.began_ms || now_ms < since_ms + static_cast<int64_t>(kLifeUs / 1000)) {
        return false;
    }

    char id[20];
    snprintf(id, sizeof(id), "%016llx",
             static_cast<unsigned long long>(flight.of->worker->redis.client.holder->id));
    const Value state = server.store.run({"GET", "p:z:{" + flight.key + "}:inflight"}, now_ms);
    return state.text.find(id) == std::string::npos;
}

void Scene::mark_dead(Server &server) {
    for (Flight &flight : flights_) {
        if (flight.is_running && !flight.was_dead && is_late(server, flight)) {
            count("units that were reported late");
            flight.was_dead = true;
        }

        if (flight.is_running && !flight.was_dead && flight.of->is_dead(server)) {
            count("units of workers that were declared dead");
            flight.was_dead = true;
        }
    }
}

void Scene::note(const Server &server, const Arguments &command, const Value &reply) {
    const std::string prefix = "p:holder:";
    std::string words;
    for (size_t i = 4; i < command.size(); i++) {
        words += " " + command[i];
    }
    trace("%s:%s", command[3].c_str(), words.c_str());
    const bool is_beat = command[2] == "3" && command[3].compare(0, prefix.size(), prefix) == 0
                         && command[4] == "p:holders";
    if (!is_beat || reply.elements.empty() || reply.elements[0].number == 0) { return; }

    const uint64_t id = strtoull(command[3].c_str() + prefix.size(), nullptr, 16);
    for (Watched &one : watched_) {
        const UnitHolder *holder = one.worker->redis.client.holder;
        if (holder != nullptr && holder->id == id) { one.beats_us[server.number()] = now_us(); }
    }
}

void Scene::fail_over(bool keeps) {
    const Server &last = site_.master();
    site_.fail_over(keeps);
    for (Watched &one : watched_) {
        /* a worker has the life of a heartbeat to find the new master */
        if (!one.is_dead(last)) { one.beats_us[site_.master().number()] = now_us(); }
    }
}

void Scene::draw_fault(uint64_t length_us) {
    static constexpr Fault kFaults[]
        = {Fault::kRefused, Fault::kFrozen, Fault::kUnreachable, Fault::kSlow,
           Fault::kErrors,  Fault::kCloses, Fault::kFlushes};
    const uint64_t at_us = below(length_us);
    const uint64_t lasts_us = between(1000, chance(300) ? 5000000 : 300000);
    Server *server = site_.servers[below(site_.servers.size())].get();
    const uint64_t kind = below(10);
    if (kind < 4) {
        after(at_us, [server, lasts_us, fault = kFaults[below(std::size(kFaults))]] {
            server->suffer(fault, lasts_us);
        });
    } else if (kind < 6) {
        after(at_us, [server, keeps = chance(500)] { server->restart(keeps); });
    } else if (kind == 6) {
        after(at_us, [lasts_us] { stall(lasts_us); });
    } else if (kind == 7) {
        after(at_us, [] { set_failing_allocations(static_cast<unsigned>(between(1, 300))); });
        after(at_us + lasts_us, [] { set_failing_allocations(0); });
    } else {
        Watched *one
            = &*std::next(watched_.begin(), static_cast<ptrdiff_t>(below(watched_.size())));
        after(at_us, [one] {
            count("cuts");
            trace("cut");
            one->cut.begin();
        });
        after(at_us + lasts_us, [one] { one->cut.end(); });
    }
}

void Scene::draw(uint64_t length_us) {
    const uint64_t n = between(20, 200);
    for (uint64_t i = 0; i < n; i++) {
        Watched *one
            = &*std::next(watched_.begin(), static_cast<ptrdiff_t>(below(watched_.size())));
        const std::string key = "k" + std::to_string(below(site_.plan.nkeys));
        const uint64_t cost = chance(100) ? below(4) : 1;
        const uint64_t lasts_us = between(1000, chance(200) ? 8000000 : 500000);
        const uint64_t burst = chance(100) ? between(2, 12) : 1;
        after(below(length_us), [=] {
            for (uint64_t j = 0; j < burst; j++) {
                wake([=] { come(*one, key, cost, lasts_us); });
            }
        });
    }

    for (uint64_t left = chance(200) ? 0 : between(1, 5); left > 0; left--) {
        draw_fault(length_us);
    }

    if (site_.plan.nservers > 1 && chance(500)) {
        after(below(length_us), [this, keeps = chance(500)] { fail_over(keeps); });
    }
}

void Scene::recover() {
    const Weather clear{20, 200, 0, 0, 0};
    set_failing_allocations(0);
    weather = clear;
    end_stalls();
    for (auto &server : site_.servers) {
        server->heal();
    }

    for (Watched &one : watched_) {
        one.cut.end();
    }

    run_for(4000000);
    for (Watched &one : watched_) {
        const uint64_t admitted = nadmitted_;
        for (unsigned tries = 0; tries < 5 && nadmitted_ == admitted; tries++) {
            wake([this, &one] { come(one, "fresh", 1, 50000); });
            run_for(1000000);
        }

        if (nadmitted_ == admitted) { broken("holds: redis does not decide again"); }
    }

    run_for(9000000);
}

/* A request that runs for a day counts for a day, though Redis forgets units after an hour. */
void Scene::check_day() {
    constexpr uint64_t kHourUs = 3600000000;
    const std::string key = "day";
    wake([&] { come(watched_.front(), key, site_.plan.limit, 25 * kHourUs); });
    run_for(1000000);
    const Flight &day = flights_.back();
    if (!day.is_running) { broken("holds: no request runs for a day"); }

    run_for(24 * kHourUs);
    count("requests of a day");
    wake([&] { come(watched_.back(), key, 1, 1000); });
    run_for(2 * kHourUs);
    if (day.was_dead) { broken("holds: the worker of a day was declared dead"); }
}

void Scene::check_end() {
    for (Flight &flight : flights_) {
        if (flight.is_running || flight.is_waiting) { broken("holds: a request is left"); }
    }

    Store &store = site_.master().store;
    const int64_t now_ms = site_.master().clock_us() / 1000;
    for (size_t n = 0; n < site_.plan.nkeys; n++) {
        const Value state = store.run({"GET", "p:z:{k" + std::to_string(n) + "}:inflight"}, now_ms);
        for (size_t at = 0; at + 16 < state.text.size(); at = state.text.find(' ', at) + 1) {
            const std::string id = state.text.substr(at, 16);
            if (store.run({"EXISTS", "p:holder:" + id}, now_ms).number != 0) {
                broken("holds: units leak: %s", state.text.c_str());
            }

            if (state.text.find(' ', at) == std::string::npos) { break; }
        }
    }
}

/* The master has counted units for long. */
void Scene::begin_old() {
    char run[60];
    snprintf(run, sizeof(run), "1600000000000 %040x", site_.master().number());
    (void)site_.master().store.run({"SET", "p:holders", run}, site_.master().clock_us() / 1000);
}

Plan draw_plan() {
    Plan plan{};
    plan.policy.algorithm = Algorithm::kInFlight;
    plan.limit = between(1, chance(500) ? 4 : 40);
    plan.connect_timeout_ms = between(5, 100);
    plan.timeout_ms = between(5, 60);
    plan.nservers = 1;
    if (chance(300)) {
        plan.topology = Topology::kSentinel;
        plan.nservers = 2;
        plan.nsentinels = between(1, 3);
    }
    plan.nmachines = between(1, 3);
    plan.nworkers = between(1, 2);
    plan.nkeys = between(1, 3);
    return plan;
}

} // namespace

Outcome run_hold_seed(uint64_t seed) {
    begin_world(seed);
    const Plan plan = draw_plan();
    trace("holds: %zu machines of %zu workers, %zu keys of %d", plan.nmachines, plan.nworkers,
          plan.nkeys, static_cast<int>(plan.limit));
    weather = {};
    weather.delay_least_us = between(20, 300);
    weather.delay_most_us = weather.delay_least_us + below(chance(200) ? 30000 : 2000) + 1;
    if (chance(300)) { weather.pieces = static_cast<unsigned>(between(50, 700)); }
    if (chance(300)) { weather.late = static_cast<unsigned>(between(1, 100)); }
    {
        Site in(plan);
        Scene of(in);
        scene = &of;
        if (chance(800)) { of.begin_old(); }
        const uint64_t length_us = between(1000000, 12000000);
        of.draw(length_us);
        run_for(length_us);
        of.recover();
        if (chance(1)) { of.check_day(); }

        of.check_end();
        in.end();
        script_watch = nullptr;
        find_cut = nullptr;
        scene = nullptr;
    }
    end_world();
    forget_connections();
    return {is_broken(), trace_hash()};
}

} // namespace sim
