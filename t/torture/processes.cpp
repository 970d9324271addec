/* Copyright (C) the limit_sliding authors */

/*
 * usage: processes SECONDS [SEED [rings]]
 *
 * Eight and 64 processes at one zone, killed and stopped at random, under each
 * algorithm in turn, with clocks that differ by some ms.  No call may hang, no key may
 * exceed its limit unless keys are evicted, and none may be rejected that had room: see
 * witness.hpp.  What was in flight in killed processes is all that may be lost.
 *
 * A third of the time, or with "rings" all of it, goes to one setting, in which
 * stopped processes come back to rings that were evicted meanwhile.
 */

#include <algorithm>
#include <vector>

#include "draw.hpp"
#include "report.hpp"
#include "witness.hpp"
#include "workers.hpp"

namespace torture {

namespace {

constexpr double kRoundS = 1;

/* Admissions that are noted, so that checking them takes little time. */
constexpr uint64_t kAdmissionsAMs = 60;

struct Totals {
    uint64_t calls = 0;
    uint64_t kills = 0;
    uint64_t stops = 0;
    uint64_t admissions = 0;
    uint64_t rejections = 0;
};

/* A log's worker was once seen to hang in this one, within a minute. */
Setting rings(uint64_t seed, double seconds) {
    Setting s = {};

    s.name = "log, rings that are evicted under stopped processes";
    s.policy.algorithm = Algorithm::kLog;
    s.policy.window_ms = 3000;
    s.limit = 1000;
    s.cost_max = 1;
    s.keys = 300;
    s.evicts = true;
    s.zone_bytes = 64 * 1024;
    s.processes = 16;
    s.stop_every_us = 1000;
    s.stopped = 6;
    s.stop_us = 300;
    s.is_even = true;
    s.seconds = seconds;
    s.seed = seed;

    return s;
}

Setting draw_setting(uint64_t seed) {
    Draw draw(seed);
    Setting s = {};

    /* in turn: five algorithms, and the counter in parts */
    auto turn = static_cast<unsigned>(seed % 6);

    s.policy.algorithm = turn == 5 ? Algorithm::kCounter : static_cast<Algorithm>(turn);
    s.policy.precision = turn == 5 ? 2 + static_cast<uint32_t>(draw.below(20)) : 1;
    s.policy.window_ms = 100 + draw.below(300);
    s.limit = static_cast<uint32_t>(draw.scale(1, 200));
    s.cost_max = std::min(s.limit, 3u);
    s.keys = draw.scale(1, kAdmissionsAMs * s.policy.window_ms / s.limit + 1);
    s.keys = std::min<uint64_t>(s.keys, 300);
    s.evicts = draw.one_in(3);
    s.other_keys = s.evicts ? 20000 : 0;
    s.zone_bytes = s.evicts ? 32 * 1024 : 8 * 1024 * 1024;
    s.processes = draw.one_in(2) ? 8 : 64;
    s.kill_every_us = draw.one_in(4) ? 0 : 3000;
    s.stop_every_us = draw.one_in(4) ? 0 : 2000;
    s.stopped = 1 + static_cast<unsigned>(draw.below(s.processes / 2));
    s.stop_us = 30000;
    s.seconds = kRoundS;
    s.seed = seed;
    s.policy.strict = turn == 5 && draw.one_in(2);

    if (is_bucket(s.policy) && draw.one_in(2)) {
        s.policy.burst = static_cast<uint32_t>(draw.scale(1, 200));
    }

    s.skew_ms = draw.one_in(4) ? 0 : 3;

    s.name = text("%s%s%s, %u processes, %s", name_of(s.policy.algorithm),
                  turn == 5 ? " precision=n" : "", s.policy.strict ? " strict" : "", s.processes,
                  s.evicts ? "evictions" : "no evictions");

    return s;
}

class Round {
public:
    Round(Report *report, Totals *totals, const Setting &setting)
        : report_(report), totals_(totals), setting_(setting), workers_(setting) {}

    void run() {
        std::string hung = workers_.run();

        totals_->calls += workers_.calls();
        totals_->kills += workers_.kills();
        totals_->stops += workers_.stops();

        if (!hung.empty()) { deviates("a process hangs", hung); }

        gather();
        check();
    }

private:
    void deviates(const std::string &what, const std::string &where) {
        report_->deviates(setting_.name + ": " + what,
                          text("seed %llu: ", static_cast<unsigned long long>(setting_.seed))
                              + where);
    }

    void gather() {
        witnesses_.assign(setting_.keys, Witness(setting_.policy, setting_.limit));

        for (unsigned i = 0; i < setting_.processes; i++) {
            const Desk &desk = workers_.desk(i);

            if (desk.full_ms.load() != 0) {
                known_until_ms_ = std::min(known_until_ms_, desk.full_ms.load());
            }
        }

        for (unsigned i = 0; i < setting_.processes; i++) {
            const Desk &desk = workers_.desk(i);

            for (uint64_t j = 0; j < desk.notes.load(); j++) {
                note(desk.note[j]);
            }
        }

        for (const Loss &loss : workers_.losses()) {
            if (loss.key < setting_.keys) {
                witnesses_[loss.key].admitted({loss.before_ms, loss.after_ms, loss.cost, false});
            }
        }
    }

    void note(const Note &note) {
        Span span = {note.before_ms, note.after_ms, note.cost, true};

        if (note.is_admitted) {
            witnesses_[note.key].admitted(span);
            totals_->admissions++;
        } else if (note.after_ms < known_until_ms_) {
            witnesses_[note.key].rejected(span);
            totals_->rejections++;
        }
    }

    void check() {
        const SlotCounts stats = sum_of(&workers_.zone()->counts, 1);

        if (stats.used > workers_.zone()->slot_count()) {
            deviates("more slots are used than there are", "");
        }

        if (!setting_.evicts && stats.evicted > 0) {
            deviates("evictions in a zone that has room",
                     text("%llu", static_cast<unsigned long long>(stats.evicted)));
        }

        for (uint64_t key = 0; key < setting_.keys; key++) {
            check_key(key);
        }
    }

    void check_key(uint64_t key) {
        Witness &witness = witnesses_[key];
        std::string place = text("key %llu, ", static_cast<unsigned long long>(key));
        std::string wrong;

        witness.sort();

        if (!setting_.evicts) {
            wrong = witness.check_never_over();

            if (!wrong.empty()) { deviates("over the limit", place + wrong); }

            check_rest(key, place);
        }

        wrong = witness.check_rejections();

        if (!wrong.empty()) { deviates("rejected with room", place + wrong); }
    }

    /* What the zone says of a key when all have ended. */
    void check_rest(uint64_t key, const std::string &place) {
        const Witness &witness = witnesses_[key];
        Claim look = workers_.claim(key, 0);
        Verdict verdict;
        uint64_t now_ms = workers_.now_ms() + setting_.skew_ms; /* by the clock that is ahead */
        Shares w = setting_.policy.window_ms;

        look.purpose = Purpose::kLook;
        limit_sliding::acquire(&look, 1, now_ms);
        verdict = look.describe(now_ms);

        Shares used
            = full(setting_.policy, setting_.limit) - static_cast<Shares>(verdict.remaining) * w;

        if (used < witness.least_used(now_ms)) {
            deviates("a count was lost",
                     place
                         + text("%llu remain", static_cast<unsigned long long>(verdict.remaining)));
        }

        if (known_until_ms_ == UINT64_MAX && used > 0 && used - w >= witness.most_used(now_ms)) {
            deviates("a count that was never made",
                     place
                         + text("%llu remain", static_cast<unsigned long long>(verdict.remaining)));
        }
    }

    Report *report_;
    Totals *totals_;
    Setting setting_;
    Workers workers_;
    std::vector<Witness> witnesses_;
    uint64_t known_until_ms_ = UINT64_MAX; /* a desk was full then */
};

int torture_processes(int argc, char **argv) {
    Report report("processes", argc, argv);
    Totals totals;
    auto count = [](uint64_t n) { return static_cast<unsigned long long>(n); };

    bool is_rings = argc > 3 && std::string(argv[3]) == "rings";

    /* a third of the time, at once: what is rare takes long to happen */
    if (report.seconds() > 0) {
        Round(&report, &totals,
              rings(report.next_seed(), is_rings ? report.seconds() : report.seconds() / 3))
            .run();
    }

    while (report.has_time() && !is_rings) {
        Round(&report, &totals, draw_setting(report.next_seed())).run();
    }

    return report.finish(text("%llu requests, %llu admissions and %llu rejections checked, %llu "
                              "kills, %llu stops",
                              count(totals.calls), count(totals.admissions),
                              count(totals.rejections), count(totals.kills), count(totals.stops)));
}

} // namespace

} // namespace torture

int main(int argc, char **argv) { return torture::torture_processes(argc, argv); }
