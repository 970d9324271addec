/* Copyright (C) the limit_sliding authors */

#include "http/api/timelines.hpp"

#include <iterator>

#include "ngx/event.hpp"

namespace limit_sliding {
namespace {

/* A counter of a timeline, and its field in the JSON. */
template <class Counters>
struct Column {
    const char *name;
    uint64_t (*value)(const Counters &all);
};

constexpr Column<Statistics> kZoneColumns[] = {
    {"passed", [](const auto &all) { return all.requests[kCountPassed]; }},
    {"delayed", [](const auto &all) { return all.requests[kCountDelayed]; }},
    {"rejected", [](const auto &all) { return all.requests[kCountRejected]; }},
    {"delayed_dry_run", [](const auto &all) { return all.requests[kCountDelayedDryRun]; }},
    {"rejected_dry_run", [](const auto &all) { return all.requests[kCountRejectedDryRun]; }},
    {"fallback", [](const auto &all) { return all.sources[kRemoteSources - 1]; }},
    {"evicted", [](const auto &all) { return all.slots.evicted; }},
    {"refused", [](const auto &all) { return all.slots.refused; }},
};

constexpr Column<CallCounters> kRedisColumns[] = {
    {"calls", [](const auto &all) { return all.latencies.n(); }},
    {"failed_calls", [](const auto &all) { return all.failed; }},
};

template <class Counters, size_t N>
void record(Timeline<N> &timeline, const Column<Counters> (&columns)[N], const Counters &all) {
    uint64_t values[N];
    for (size_t i = 0; i < N; i++) {
        values[i] = columns[i].value(all);
    }

    timeline.record(values, ngx_current_msec);
}

/* Writes the timeline as JSON, and omits counters that have not risen. */
template <class Counters, size_t N>
void write(Json &json, const Column<Counters> (&columns)[N], const Timeline<N> &timeline) {
    auto object = json.object("timeline");
    json.field("period_ms", kPeriodMs);
    json.field("age_ms", timeline.age_ms(ngx_current_msec));
    json.field("periods", timeline.size());

    for (size_t i = 0; i < N; i++) {
        uint64_t sum = 0;
        for (size_t period = 0; period < timeline.size(); period++) {
            sum += timeline.increase(i, period);
        }
        if (sum == 0) { continue; }

        auto array = json.array(columns[i].name);
        for (size_t period = 0; period < timeline.size(); period++) {
            json.field({}, timeline.increase(i, period));
        }
    }
}

struct Recorder {
    const MainConf *main;
    ngx_event_t timer;
};

Recorder recorder;

void record_next(Recorder &recorded) {
    record_timelines(*recorded.main);
    ngx_add_timer(&recorded.timer, kPeriodMs - ngx_current_msec % kPeriodMs);
}

} // namespace

void start_timelines(const MainConf &main) {
    recorder.main = &main;
    init_event<record_next>(recorder.timer, recorder);
    recorder.timer.cancelable = 1; /* an exiting worker does not wait for the timer */
    record_next(recorder);
}

void record_timelines(const MainConf &main) {
    for (const ZoneConf *zone : main.zones) {
        const ZoneMemory &aside = zone->memory.aside;
        record(*aside.timeline, kZoneColumns, sum_of(aside.counters, aside.nstatistics));
    }

    for (const Redis *redis : main.redises) {
        if (redis->shared == nullptr) { continue; /* no zone uses it */ }

        const auto &calls = redis->shared->calls;
        record(redis->shared->timeline, kRedisColumns, sum_of(calls, std::size(calls)));
    }
}

void write_timeline(Json &json, const ZoneTimeline &timeline) {
    write(json, kZoneColumns, timeline);
}

void write_timeline(Json &json, const RedisTimeline &timeline) {
    write(json, kRedisColumns, timeline);
}

} // namespace limit_sliding
