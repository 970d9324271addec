/* Copyright (C) the limit_sliding authors */

#include "traffic.hpp"

#include <algorithm>

#include "core/limiter/limiter.hpp"
#include "core/table/zone.hpp"
#include "http/request/sync_claims.hpp"
#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis/shared/refusals.hpp"
#include "world.hpp"

namespace sim {

using namespace limit_sliding;

Traffic *traffic;

namespace {

/* How late a waiter may be told: the clock has whole milliseconds. */
constexpr uint64_t kSlackUs = 2000;

/* What a request gets that was to be told while its worker was busy. */
constexpr uint64_t kTurnsOfGrace = 2;

} // namespace

struct Traffic::Request {
    Worker *worker;
    std::string keys[2];
    size_t n = 0; /* claims */
    Waiter waiter{};
    Claim claims[2] = {};
    RemoteClaim remotes[2] = {};
    uint64_t began_us;
    uint64_t stalled_us;
    uint64_t admitted_ms;
    bool is_waiting = false;
    bool is_over = false;

    void told() { traffic->told(*this); }
};

Traffic::Traffic(Site &of) : site_(of) {}
Traffic::~Traffic() = default;

void Traffic::add_claim(Request &request, unsigned key) {
    const size_t i = request.n++;
    Worker &worker = *request.worker;
    request.keys[i] = "k" + std::to_string(key);
    Claim &claim = request.claims[i];
    claim.zone = worker.machine->table;
    claim.policy = worker.zone.policy;
    claim.hash = claim.zone->hash(request.keys[i]);
    claim.limit = site_.plan.limit;
    claim.cost = 1;
    claim.remote = &request.remotes[i];
    claim.remote->zone = &worker.zone;
    claim.remote->key = to_str(request.keys[i]);
    claim.remote->asked = claim.policy;
    claim.remote->source = Source::kRedis;
}

void Traffic::come(Worker &worker, unsigned key, bool is_pair) {
    Request &request = requests_.emplace_back();
    request.worker = &worker;
    request.began_us = now_us();
    request.stalled_us = stalled_us();
    add_claim(request, key);
    if (is_pair) { add_claim(request, (key + 1) % static_cast<unsigned>(site_.plan.nkeys)); }

    init_event<&Request::told>(request.waiter.event, request);
    if (site_.plan.sync_ms != 0) {
        decide_here(request);
    } else {
        decide(request);
    }
}

/* As src/http does. */
void Traffic::decide(Request &request) {
    const Span<Claim> claims{request.claims, request.n};
    if (spend_leases(claims)) {
        describe_leases(claims);
        admit(request);
        finish(request, "has a lease");
        return;
    }

    for (Claim &claim : claims) {
        know_window(claim);
        Refusal refusal;
        if (claim.remote->zone->refusals->find(refusal_hash(claim), ngx_current_msec, &refusal)
            && !refusal.admits()) {
            finish(request, "is known to be refused");
            return;
        }
    }

    if (is_away(request.worker->redis)) {
        unanswered_++;
        finish(request, "finds no redis");
        return;
    }

    request.is_waiting = true;
    waiting_++;
    if (!ask_redis(claims, &request.waiter)) {
        unanswered_++;
        finish(request, "cannot ask");
        return;
    }

    trace("%s asks", request.keys[0].c_str());
    if (chance(pace.stops)) {
        after(below(1000), [us = below(site_.plan.timeout_ms * 3000)] { stall(us); });
    }

    for (size_t i = 0; i < request.n; i++) {
        keys_[request.keys[i]].asked++;
    }

    if (!is_patient_ && chance(20)) {
        after(below(site_.plan.timeout_ms * 1500),
              [this, &request] { wake([this, &request] { leave(request); }); });
    }
}

/* As src/http does with "sync=". */
void Traffic::decide_here(Request &request) {
    Claim &claim = request.claims[0];
    complete_synced(claim);
    (void)acquire(&claim, 1, ngx_current_msec);
    const bool admits = claim.outcome == limit_sliding::Outcome::kAdmitted;
    keys_[request.keys[0]].asked += admits;
    tell_synced({&claim, 1}, admits);
    if (admits) { admit(request); }

    finish(request, admits ? "is admitted here" : "is rejected here");
}

void Traffic::leave(Request &request) {
    if (request.is_over) { return; }

    count("requests that left");
    leave_ask(&request.waiter);
    finish(request, "leaves");
}

void Traffic::interrupt() {
    if (is_patient_ || !chance(10)) { return; }

    for (auto request = requests_.rbegin(); request != requests_.rend(); ++request) {
        if (request->waiter.event.posted) {
            count("requests that left before they knew");
            leave(*request);
            return;
        }
    }
}

void Traffic::told(Request &request) {
    if (request.is_over) {
        broken("%s is told twice, or after it has left", request.keys[0].c_str());
        return;
    }

    const uint64_t lived_us = now_us() - request.began_us;
    const uint64_t stalled = stalled_us() - request.stalled_us;
    const uint64_t took_us = lived_us - std::min(lived_us, stalled);
    const uint64_t turns = stalled != 0 ? 1 + kTurnsOfGrace : 1;
    if (took_us > site_.plan.timeout_ms * 1000 + turns * (kSlackUs + pace.clock_age_us)) {
        broken("%s is told after %.3f ms", request.keys[0].c_str(),
               static_cast<double>(took_us) / 1000);
    }

    switch (request.waiter.result) {
    case WaitResult::kAdmitted:
        admit(request);
        finish(request, "is admitted");
        break;
    case WaitResult::kRejected:
        finish(request, "is rejected");
        break;
    case WaitResult::kFailed:
        unanswered_++;
        finish(request, "is not answered");
    }
}

/* Leased units count when they are spent, by the clock of the server that has granted them; units
 * of a zone with "sync=" by the clock of the machine, which has decided. */
void Traffic::admit(Request &request) {
    request.admitted_ms = ngx_current_msec;
    for (size_t i = 0; i < request.n; i++) {
        const Claim &claim = request.claims[i];
        const bool is_told = claim.remote->source == Source::kRedis;
        const bool is_decided_here = site_.plan.sync_ms != 0;
        const int64_t at_ms = is_told ? static_cast<int64_t>(claim.remote->taken.now_ms)
                              : is_decided_here
                                  ? static_cast<int64_t>(ngx_current_msec + claim.zone->offset_ms)
                                  : site_.server_of(request.keys[i]).clock_us() / 1000;
        KeyRecord &record = keys_[request.keys[i]];
        record.admitted++;
        record.times[is_decided_here ? request.worker->machine : nullptr].emplace_back(at_ms, 1);
    }

    admitted_++;
    if (site_.plan.sync_ms != 0 && chance(200)) {
        after(below(100000), [this, &request] { wake([this, &request] { refund(request); }); });
    }

    if (site_.plan.settles && request.n == 1) {
        const int64_t difference = static_cast<int64_t>(below(5)) - 1;
        after(below(50000), [&request, difference] {
            count("settlements");
            wake([&request, difference] { settle_redis(request.claims[0], difference); });
        });
    }
}

/* A request of a zone with "sync=" turns out to cost nothing.  What was admitted in its place is
 * not above the limit. */
void Traffic::refund(Request &request) {
    count("refunds");
    trace("%s is refunded", request.keys[0].c_str());
    const Claim &claim = request.claims[0];
    settle_synced(claim, 1, 0, request.admitted_ms);
    auto &times = keys_[request.keys[0]].times[request.worker->machine];
    const auto at_ms = static_cast<int64_t>(request.admitted_ms + claim.zone->offset_ms);
    const auto time = std::find(times.begin(), times.end(), std::make_pair(at_ms, uint64_t{1}));
    if (time != times.end()) { times.erase(time); }
}

void Traffic::finish(Request &request, const char *how) {
    trace("%s %s", request.keys[0].c_str(), how);
    count(how);
    request.is_over = true;
    if (request.is_waiting) { waiting_--; }
}

void Traffic::note_grant(const std::string &name, uint64_t units) {
    const size_t brace = name.find('{');
    const std::string key = name.substr(brace + 1, name.find('}') - brace - 1);
    keys_[key].granted += units;
}

/* Returns the most that was admitted in any window, or to a bucket in any time beside what ran
 * off in it.  With "sync=" a burst that is over the limit is not held against all times. */
static uint64_t most_admitted(const Policy &policy, uint64_t limit, bool one_window,
                              const std::vector<std::pair<int64_t, uint64_t>> &times) {
    const auto w = static_cast<int64_t>(policy.window_ms);
    uint64_t most = 0;
    for (size_t i = 0; i < times.size(); i++) {
        uint64_t sum = 0;
        const int64_t from = times[i].first;
        for (size_t j = i; j < times.size(); j++) {
            const int64_t ago = times[j].first - from;
            const bool is_aligned
                = policy.algorithm == Algorithm::kFixed || policy.algorithm == Algorithm::kCounter;
            const bool is_bucket = policy.algorithm == Algorithm::kTokenBucket
                                   || policy.algorithm == Algorithm::kLeakyBucket;
            const bool is_over = is_aligned ? times[j].first / w != from / w : ago >= w;
            if (is_over && (!is_bucket || one_window)) { break; }

            sum += times[j].second;
            const uint64_t ran_off
                = is_bucket ? static_cast<uint64_t>(ago) * limit / policy.window_ms : 0;
            most = std::max(most, sum - std::min(sum, ran_off));
        }
    }
    return most;
}

void Traffic::check_bound(const std::string &key, KeyRecord &record, bool is_bounded) {
    const Plan &plan = site_.plan;
    const bool is_decided_here = plan.sync_ms != 0;
    if (!is_bounded) { return; }

    if (plan.sync_ms == 0 && record.admitted > record.granted) {
        broken("%s: admitted %zu, granted %zu", key.c_str(), static_cast<size_t>(record.admitted),
               static_cast<size_t>(record.granted));
    }

    unsigned losses = 0;
    for (auto &server : site_.servers) {
        losses += server->losses();
    }

    /* with "sync=", a server that has lost its data is told again */
    const bool is_told_once = plan.lease == 0 && (plan.sync_ms == 0 || losses == 0);
    if (is_told_once && record.granted > record.asked) {
        broken("%s: granted %zu, asked %zu", key.c_str(), static_cast<size_t>(record.granted),
               static_cast<size_t>(record.asked));
    }

    /* a bucket runs off in the last master, too, until that is none any more */
    const bool is_leaky = plan.policy.algorithm == Algorithm::kLeakyBucket;
    const bool is_bucket = is_leaky || plan.policy.algorithm == Algorithm::kTokenBucket;
    /* a machine rounds times of a bucket to ms */
    const uint64_t capacity
        = plan.policy.capacity(plan.limit) + (is_leaky || (is_decided_here && is_bucket));
    const uint64_t split = is_bucket ? plan.limit * 500 / plan.policy.window_ms + 1 : 0;
    if (plan.settles) { return; }

    /* with "sync=", a machine knows what it has admitted, whatever Redis has lost */
    const uint64_t bound = capacity + (is_decided_here ? 0 : losses * (capacity + split));
    for (auto &[machine, times] : record.times) {
        std::sort(times.begin(), times.end());
        const uint64_t most = most_admitted(plan.policy, plan.limit, is_decided_here, times);
        if (most > bound) {
            broken("%s: admitted %zu, the limit is %zu, after %u losses", key.c_str(),
                   static_cast<size_t>(most), static_cast<size_t>(capacity), losses);
        }

        count(most == capacity ? "keys that reached their limits" : "other keys");
    }
}

void Traffic::check(bool is_bounded) {
    if (waiting_ != 0) { broken("%zu requests were never told", waiting_); }

    for (auto &[key, record] : keys_) {
        if (key[0] == 'k') { check_bound(key, record, is_bounded); }
    }
}

/* Reads a command as src/redis/protocol/scripts.hpp describes it, and what its reply grants. */
void note_run(const Server &, const Arguments &command, const Value &reply) {
    traffic->note_run();
    if (reply.type != Value::kArray) { return; }

    const Plan &plan = site->plan;
    const size_t keys = 3, nkeys = std::stoul(command[2]);
    auto is_negative = [&](size_t i) { return reply.elements.at(i).number < 0; };

    size_t at = 1, place = keys + nkeys;
    std::string head;
    for (size_t key = keys; key < keys + nkeys;) {
        int64_t granted = 0;
        for (size_t i = 0, m = 1; i < m; i++, place++) {
            if (place < command.size() && !command[place].empty()) { head = command[place]; }

            const auto purpose = static_cast<Purpose>(head.at(1));
            const bool is_synced = head.at(9) == 2, has_name = head.at(9) != 0;
            const bool is_settled = purpose == Purpose::kGiveBack || purpose == Purpose::kCharge;
            if (i == 0) {
                m = static_cast<size_t>(head.at(2));
                granted = reply.elements.at(at++).number;
            }

            if (!is_settled && purpose != Purpose::kLook) {
                traffic->note_grant(command[key], static_cast<uint64_t>(granted));
            }

            /* no key has an override, so only one that owes has a negative number */
            const bool is_counter = plan.policy.algorithm == Algorithm::kCounter;
            at += is_negative(at) ? 3 : 0;
            at += (is_settled || is_counter ? 1 : remote_values(plan.policy, 0)) + has_name
                  + 2 * is_synced;
            key += plan.topology == Topology::kCluster ? 1 : 2 + plan.settles + has_name;
        }
    }
    if (at != reply.elements.size()) {
        broken("a reply has other numbers than its command asks for");
    }
}

} // namespace sim
