/* Copyright (C) the limit_sliding authors */

/*
 * usage: scripts SECONDS [SEED]
 *
 * The script in a real Redis beside the model: calls of many asks, many calls
 * at a time.  In every other round the clock is Redis's own, so windows are
 * short, and keys expire as Redis lets them; in the others it is the history's,
 * with windows of any length, and a round can be replayed by its seed.
 */

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "draw.hpp"
#include "model.hpp"
#include "redis/protocol/remote_state.hpp"
#include "redis/protocol/scripts.hpp"
#include "redis_server.hpp"
#include "report.hpp"
#include "script_call.hpp"

using namespace limit_sliding;

namespace torture {

namespace {

constexpr unsigned kAllAlgorithms = 0x1f;
constexpr size_t kAsksACall = 16;
constexpr size_t kCallsAtATime = 64;
constexpr size_t kToldLines = 8; /* of a key's history, with a deviation */

/* A log has a member for each unit, which takes its time. */
constexpr uint32_t kLogCostMax = 60;
constexpr uint32_t kLogLimitMax = 2000;

/* Numbers of Lua are exact to here. */
constexpr uint64_t kSharesMax = 1ull << 53;

uint64_t counted_asks;
uint64_t counted_units;

/* SHA-1 of the script, by its clock and whether it is that of a cluster. */
char scripts[2][2][41];

struct Style {
    bool is_real_time;
    bool is_cluster;
    bool varies;     /* limits do, from ask to ask */
    bool gives_back; /* in a cluster only */
};

/* A unit that may be given back. */
struct Taken {
    Claim claim;
    limit_sliding::Taken of;
    size_t admission;
};

class Round {
public:
    Round(Report *report, uint64_t seed, redisContext *context)
        : report_(report), seed_(seed), draw_(seed), context_(context) {
        style_.is_real_time = seed % 2 == 0;
        style_.is_cluster = draw_.one_in(2);
        style_.gives_back = style_.is_cluster && draw_.one_in(2);
        style_.varies = !style_.gives_back && draw_.one_in(3);
        now_ms_ = 1700000000000 + draw_.below(1ull << 36);

        for (size_t n = 1 + draw_.below(3); n > 0; n--) {
            add_policy();
        }
    }

    void run() {
        unsigned turns = 10 + static_cast<unsigned>(draw_.below(30));

        freeReplyObject(redisCommand(context_, "FLUSHALL"));
        set_limits();

        for (turn_ = 0; turn_ < turns && !has_failed_; turn_++) {
            if (style_.is_real_time) { pause(); }

            turn();
        }
    }

private:
    /* ---- what there is ---- */

    void add_policy() {
        auto algorithm = static_cast<Algorithm>(draw_.below(5));
        uint64_t window_ms = style_.is_real_time ? 100 + draw_.below(300) : draw_.window_ms();
        Policy policy = draw_.policy(algorithm, window_ms);
        size_t number = policies_.size();

        policy.precision = std::max(policy.precision, 1u);

        if (style_.varies) {
            /* a burst is kept until it has run off under the last limit */
            policy.burst = 0;
        }

        policies_.push_back(policy);

        for (size_t n = 1 + draw_.below(6); n > 0; n--) {
            std::string name = text("torture:%zu:{%zu}", number, n);

            keys_.push_back(std::make_unique<Key>(
                Key{number, name, Model(policy), limit_for(policy), false, {}}));
        }
    }

    uint32_t limit_for(const Policy &policy) {
        uint32_t limit = draw_.limit();

        if (policy.algorithm == Algorithm::kLog) { limit = std::min(limit, kLogLimitMax); }

        while (static_cast<uint64_t>(full(policy, limit)) >= kSharesMax / 2) {
            limit = limit / 2;
        }

        return limit;
    }

    /* Of some keys, with limits of their own. */
    void set_limits() {
        for (auto &key : keys_) {
            if (style_.varies || !draw_.one_in(6)) { continue; }

            bool is_off = draw_.one_in(4);
            std::string limit = is_off ? "off" : std::to_string(key->limit);

            key->is_own = true;
            key->limit = is_off ? 0 : key->limit;
            freeReplyObject(
                redisCommand(context_, "SET %s:limit %s", key->name.c_str(), limit.c_str()));
        }
    }

    /* ---- what is asked ---- */

    void pause() {
        uint64_t window_ms = policies_[0].window_ms;
        uint64_t ms = draw_.one_in(16)  ? draw_.below(2 * window_ms)
                      : draw_.one_in(4) ? draw_.below(window_ms / 8 + 1)
                                        : draw_.below(3);

        usleep(static_cast<unsigned>(ms * 1000));
    }

    Claim draw_claim(Key *key) {
        const Policy &policy = policies_[key->policy];
        uint32_t limit = key->limit;
        uint32_t cost;

        if (key->is_own) {
            limit = limit_for(policy);
        } else if (style_.varies && draw_.one_in(3)) {
            limit = draw_.one_in(2) ? 1 + static_cast<uint32_t>(draw_.below(limit))
                                    : limit_for(policy);
        }

        cost = draw_.cost(capacity(policy, limit));

        if (policy.algorithm == Algorithm::kLog) { cost = std::min(cost, kLogCostMax); }

        return {key, limit, cost, draw_.one_in(16), {}, 0};
    }

    Ask draw_ask() {
        Ask ask = {};

        if (!taken_.empty() && draw_.one_in(6)) {
            Taken taken = taken_.back();

            taken_.pop_back();
            taken.claim.look = 2;
            taken.claim.taken = taken.of;
            taken.claim.admission = taken.admission;
            ask.units = 1;
            ask.claims.push_back(taken.claim);

            return ask;
        }

        ask.units = draw_.one_in(4) ? 1 + static_cast<unsigned>(draw_.below(5)) : 1;

        for (const auto &key : keys_) {
            bool is_new = ask.claims.empty() || ask.claims.back().key->policy != key->policy;

            if (is_new && draw_.one_in(ask.claims.empty() ? 4 : 12)) {
                ask.claims.push_back(draw_claim(key.get()));
            }
        }

        if (ask.claims.empty()) {
            ask.claims.push_back(draw_claim(keys_[draw_.below(keys_.size())].get()));
        }

        return ask;
    }

    Call draw_call() {
        Call call = {};

        if (!style_.is_real_time) {
            now_ms_ += draw_.gap_ms(policies_[0], std::max(keys_[0]->limit, 1u), now_ms_);
            call.now_ms = now_ms_;
        }

        for (size_t n = 1 + draw_.below(kAsksACall); n > 0; n--) {
            call.asks.push_back(draw_ask());
        }

        return call;
    }

    /* Some calls at a time. */
    void turn() {
        std::vector<Call> calls(1 + draw_.below(kCallsAtATime));

        for (Call &call : calls) {
            call = draw_call();
            send_call(context_, scripts[style_.is_real_time][style_.is_cluster], call);
        }

        for (const Call &call : calls) {
            void *reply = nullptr;

            if (redisGetReply(context_, &reply) != REDIS_OK) {
                printf("scripts: %s\n", context_->errstr);
                exit(2);
            }

            if (!has_failed_) { read(call, static_cast<redisReply *>(reply)); }

            freeReplyObject(reply);
        }
    }

    /* ---- what is answered ---- */

    void read(const Call &call, const redisReply *reply) {
        std::vector<int64_t> numbers;

        if (reply->type != REDIS_REPLY_ARRAY) {
            deviates(call.asks[0].claims[0], 0, text("an error: %s", reply->str));
            return;
        }

        for (size_t i = 0; i < reply->elements; i++) {
            numbers.push_back(reply->element[i]->integer);
        }

        /* what was read beyond the end is found by the length */
        numbers.resize(numbers.size() + 1024);

        auto now_ms = static_cast<uint64_t>(numbers[0]);
        const int64_t *next = &numbers[1];

        for (const Ask &ask : call.asks) {
            if (!has_failed_) { next = read_ask(ask, now_ms, next); }
        }

        if (!has_failed_ && next != numbers.data() + reply->elements) {
            deviates(call.asks[0].claims[0], now_ms, "a reply too long");
        }
    }

    const int64_t *read_ask(const Ask &ask, uint64_t now_ms, const int64_t *numbers) {
        auto granted = static_cast<unsigned>(*numbers++);
        std::vector<RemoteState> remotes;

        counted_asks++;
        counted_units += ask.units;

        for (const Claim &claim : ask.claims) {
            const Key &key = *claim.key;
            uint32_t limit = key.is_own ? key.limit : claim.limit;
            /* a limit of the key's own is told as such, but for "off" */
            int64_t told = limit + (key.is_own && limit != 0 ? kScriptOwn : 0);

            if (numbers[0] != told) { deviates(claim, now_ms, "another limit is told"); }

            note(claim, now_ms, ask.units, granted);
            remotes.push_back({now_ms, limit, numbers + 1});
            numbers += 1 + (claim.look == 2 ? 1 : remote_values(policies_[key.policy], numbers[1]));
        }

        if (ask.claims[0].look == 2) {
            give_back(ask.claims[0]);
        } else {
            grant(ask, now_ms, granted, remotes);
        }

        return numbers;
    }

    void note(const Claim &claim, uint64_t now_ms, unsigned units, unsigned granted) {
        std::deque<std::string> &lines = claim.key->lines;

        lines.push_back(text("at %llu: limit %u, cost %u, look %d: %u of %u",
                             static_cast<unsigned long long>(now_ms), claim.limit, claim.cost,
                             claim.look, granted, units));

        if (lines.size() > kToldLines) { lines.pop_front(); }
    }

    void give_back(const Claim &claim) { claim.key->model.refund(claim.admission, claim.cost); }

    bool all_fit(const Ask &ask, uint64_t now_ms, const std::vector<RemoteState> &remotes,
                 Side side) const {
        for (size_t i = 0; i < ask.claims.size(); i++) {
            const Claim &c = ask.claims[i];

            if (remotes[i].limit != 0
                && !c.key->model.fits(now_ms, remotes[i].limit, c.cost, side)) {
                return false;
            }
        }

        return true;
    }

    void grant(const Ask &ask, uint64_t now_ms, unsigned granted,
               const std::vector<RemoteState> &remotes) {
        for (unsigned unit = 0; unit < ask.units && !has_failed_; unit++) {
            bool is_granted = unit < granted;

            if (is_granted && !all_fit(ask, now_ms, remotes, Side::least)) {
                deviates(ask.claims[0], now_ms, "granted without room");
            } else if (!is_granted && all_fit(ask, now_ms, remotes, Side::most)) {
                deviates(ask.claims[0], now_ms, "rejected with room");
            }

            for (size_t i = 0; i < ask.claims.size() && !has_failed_; i++) {
                decided(ask, i, unit, granted, remotes[i]);
            }

            if (!is_granted) { return; /* so are all others */ }
        }
    }

    /* Unit number `unit` of an ask, under its claim number i. */
    void decided(const Ask &ask, size_t i, unsigned unit, unsigned granted,
                 const RemoteState &remote) {
        const Claim &claim = ask.claims[i];
        Model &model = claim.key->model;
        bool is_granted = unit < granted;
        bool is_last = unit + 1 == granted;

        if (remote.limit == 0) { return; }

        if (is_granted && claim.look == 0 && claim.cost > 0) {
            size_t admission = model.record(remote.now_ms, remote.limit, claim.cost);

            if (style_.gives_back && is_last && !claim.key->is_own && ask.claims.size() == 1) {
                remember(claim, unit, remote, admission);
            }
        }

        check(claim, unit, is_granted, ask.claims.size() == 1, remote);
    }

    void remember(const Claim &claim, unsigned unit, const RemoteState &remote, size_t admission) {
        const Policy &policy = policies_[claim.key->policy];

        /* one a key: the next turn may give it back, in any order */
        for (const Taken &taken : taken_) {
            if (taken.claim.key == claim.key) { return; }
        }

        taken_.push_back(
            {claim, remote.taken(policy, static_cast<uint64_t>(claim.cost) * unit), admission});
    }

    void check(const Claim &claim, unsigned unit, bool is_granted, bool is_alone,
               const RemoteState &remote) {
        const Model &model = claim.key->model;
        const char *fault;
        Verdict v;
        bool fits = model.fits(remote.now_ms, remote.limit, claim.cost, Side::least);

        v = remote.describe(policies_[claim.key->policy], claim.cost, unit, is_granted,
                            claim.look == 1);

        if (v.limit != remote.limit) {
            fault = "another limit is described";
        } else if (v.remaining < model.left(remote.now_ms, remote.limit, Side::most)) {
            fault = "too little remains";
        } else if (v.remaining > model.left(remote.now_ms, remote.limit, Side::least)) {
            fault = "too much remains";
        } else {
            fault = reset_fault(model, remote.now_ms, v);
        }

        if (fault == nullptr && (is_granted || is_alone || !fits)) {
            /* else another limit may have rejected */
            fault = retry_fault(model, remote.now_ms, is_granted, claim.cost, v);
        }

        if (fault != nullptr) {
            deviates(claim, remote.now_ms,
                     fault
                         + text("; remaining %llu, reset %llu, retry %llu",
                                static_cast<unsigned long long>(v.remaining),
                                static_cast<unsigned long long>(v.reset_ms),
                                static_cast<unsigned long long>(v.retry_after_ms)));
        }
    }

    void deviates(const Claim &claim, uint64_t now_ms, const std::string &what) {
        const Policy &p = policies_[claim.key->policy];
        const Model &model = claim.key->model;
        std::string where;

        if (has_failed_) { return; }

        has_failed_ = true;
        where = text("seed %llu, turn %u, %s at %llu: window %llu ms, "
                     "precision %u, burst %u, limit %u, cost %u; model: left "
                     "%llu..%llu; the key's latest asks:",
                     static_cast<unsigned long long>(seed_), turn_, claim.key->name.c_str(),
                     static_cast<unsigned long long>(now_ms),
                     static_cast<unsigned long long>(p.window_ms), p.precision, p.burst,
                     claim.limit, claim.cost,
                     static_cast<unsigned long long>(model.left(now_ms, claim.limit, Side::most)),
                     static_cast<unsigned long long>(model.left(now_ms, claim.limit, Side::least)));

        for (const std::string &line : claim.key->lines) {
            where += "\n      " + line;
        }

        report_->deviates(text("%s%s%s%s: ", name_of(p.algorithm),
                               style_.varies ? ", limits change" : "",
                               style_.gives_back ? ", gives back" : "",
                               style_.is_real_time ? ", Redis's time" : "")
                              + what.substr(0, what.find(';')),
                          where
                              + (what.find(';') == std::string::npos
                                     ? ""
                                     : "\n    told" + what.substr(what.find(';') + 1)));
    }

    Report *report_;
    uint64_t seed_;
    Draw draw_;
    redisContext *context_;
    Style style_{};
    std::vector<Policy> policies_;
    std::vector<std::unique_ptr<Key>> keys_;
    std::vector<Taken> taken_;
    uint64_t now_ms_;
    unsigned turn_ = 0;
    bool has_failed_ = false;
};

bool load_all(redis_server_t *server) {
    for (unsigned is_cluster = 0; is_cluster < 2; is_cluster++) {
        unsigned algorithms = kAllAlgorithms | (is_cluster ? kScriptCluster : 0);

        if (!redis_server_load(server, algorithms, scripts[0][is_cluster])
            || !redis_server_load(server, algorithms, scripts[1][is_cluster], true)) {
            return false;
        }
    }

    return true;
}

int torture_scripts(int argc, char **argv) {
    Report report("scripts", argc, argv);
    redis_server_t server;

    if (!redis_server_start(&server) || !load_all(&server)) {
        printf("scripts: FAILED: no redis-server\n");
        return 2;
    }

    while (report.has_time()) {
        Round(&report, report.next_seed(), server.context).run();
    }

    redis_server_stop(&server);

    return report.finish(text("%llu asks of %llu requests",
                              static_cast<unsigned long long>(counted_asks),
                              static_cast<unsigned long long>(counted_units)));
}

} // namespace

} // namespace torture

int main(int argc, char **argv) { return torture::torture_scripts(argc, argv); }
