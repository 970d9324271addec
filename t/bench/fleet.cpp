/* Copyright (C) the limit_sliding authors */

#include "fleet.hpp"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/limiter/limiter.hpp"
#include "fleet_events.hpp"
#include "fleet_redis.hpp"
#include "pure.hpp"
#include "random.hpp"
#include "redis/shared/leases.hpp"
#include "redis/shared/refusals.hpp"

using namespace limit_sliding;

#define LEASES_BYTES 192 /* of one group: only this key is there */
#define REFUSALS_BYTES 576
#define REFRESH_US 1e6 /* a node that rejects asks so often */
#define START 1000     /* the window before the measured one */

typedef struct {
    uint8_t leases[LEASES_BYTES];
    uint8_t refusals[REFUSALS_BYTES];
    double offset_us; /* of its clock */
    uint64_t sent_ms;
    uint32_t waiting; /* requests for the next call */
    uint32_t needed;  /* of the call under way; 0: there is none */
    uint32_t asked;
    redis_answer_t answer;

    /* with sync= */
    State told;        /* the key as of the last answer */
    State told_next;   /* and as of the one under way */
    double due_us;     /* nothing is sent before */
    double refresh_us; /* nor asked only to know */
    int is_waiting;    /* for due_us */
    uint32_t refused;  /* of what is waiting, units that there was no room for */
} __attribute__((aligned(64))) node_t;

struct sim_s {
    sim_config_t config;
    sim_mode_t mode;
    Policy policy;
    Claim claim;
    uint64_t hash; /* of the claim */
    redis_t redis;
    double busy_us; /* Redis is, until then */
    double from_us;
    double to_us;
    events_t decisions;
    events_t replies;
    events_t timers;         /* of nodes that wait to send */
    sim_result_t results[3]; /* before, in and after the window */
    node_t nodes[];
};

static void *checked(void *memory) {
    if (memory == NULL) { abort(); }

    return memory;
}

sim_t *sim_new(const sim_config_t *config, sim_mode_t mode) {
    uint32_t nodes = config->nodes;
    size_t bytes = sizeof(sim_t) + nodes * sizeof(node_t);
    size_t events = nodes * sizeof(event_t);
    sim_t *s;

    bytes = (bytes + 63) / 64 * 64;
    events = (events + 63) / 64 * 64;

    s = static_cast<sim_t *>(checked(aligned_alloc(64, bytes + 3 * events)));
    memset(s, 0, bytes + 3 * events);

    s->config = *config;
    s->mode = config->burst && mode == SIM_LEASED ? SIM_COALESCED : mode;
    s->policy.window_ms = config->window_ms;
    s->policy.precision = config->burst ? 0 : 1;
    s->policy.algorithm = config->burst ? Algorithm::kTokenBucket : Algorithm::kCounter;
    s->policy.burst = config->burst;
    s->decisions.events = (event_t *)((uint8_t *)s + bytes);
    s->replies.events = (event_t *)((uint8_t *)s + bytes + events);
    s->timers.events = (event_t *)((uint8_t *)s + bytes + 2 * events);
    s->decisions.size = s->replies.size = s->timers.size = nodes;

    return s;
}

static uint64_t ms_of(double us) { return (uint64_t)(us / 1000); }

static sim_result_t *result_at(sim_t *s, double us) {
    return &s->results[(us >= s->from_us) + (us >= s->to_us)];
}

static void admit(sim_t *s, double us, uint32_t units) {
    sim_result_t *result = result_at(s, us);

    result->admitted += units;

    if (!redis_judge(&s->redis, ms_of(us), units)) { result->over += units; }
}

static Leases *leases_of(node_t *node) { return (Leases *)node->leases; }

static Refusals *refusals_of(node_t *node) { return (Refusals *)node->refusals; }

static int spend(sim_t *s, node_t *node, double us) {
    Verdict verdict;

    if (s->mode != SIM_LEASED
        || !leases_of(node)->spend(&s->claim, ms_of(us + node->offset_us), &verdict)) {
        return 0;
    }

    admit(s, us, 1);
    result_at(s, us)->spent++;

    return 1;
}

/* ngx_http_limit_sliding_call(), with one key. */
static void call(sim_t *s, node_t *node, double us) {
    double at_us = us + s->config.round_trip_us / 2;

    if (at_us < s->busy_us) { at_us = s->busy_us; }

    s->busy_us = at_us + s->config.decision_us;

    node->sent_ms = ms_of(us + node->offset_us);
    node->needed = node->waiting;
    node->asked = node->waiting;
    node->waiting = 0;

    if (s->mode == SIM_LEASED) {
        node->asked += leases_of(node)->want(s->claim, kLeaseAuto, node->needed, node->sent_ms);
    }

    node->due_us = us + 1000.0 * s->config.sync_ms;
    node->refresh_us = us + REFRESH_US;

    result_at(s, us)->calls++;

    push(&s->decisions, at_us, (uint32_t)(node - s->nodes));
}

static void decide(sim_t *s, event_t event) {
    node_t *node = &s->nodes[event.node];
    uint32_t granted;

    granted = redis_ask(&s->redis, ms_of(event.at_us), node->asked, &node->answer);

    result_at(s, event.at_us)->taken += granted;
    node->told_next = s->redis.state;

    if (granted && s->mode != SIM_SYNCED) {
        admit(s, event.at_us, granted < node->needed ? granted : node->needed);
    }

    push(&s->replies, event.at_us + s->config.round_trip_us / 2, event.node);
}

/* ngx_http_limit_sliding_remember(): 1 if those who wait are refused, too. */
static int remember(sim_t *s, node_t *node, const Verdict *verdict, uint64_t now_ms) {
    uint64_t wait_ms = verdict->retry_after_ms;
    Refusal refusal;

    if (s->config.refusal_ms == 0) {
        wait_ms = node->answer.remote.refused_ms(s->policy, *verdict);
    } else if (wait_ms && wait_ms < s->config.refusal_ms) {
        wait_ms = s->config.refusal_ms;
    }

    if (wait_ms == 0 || node->sent_ms + wait_ms <= now_ms) { return 0; }

    refusal.until_ms = node->sent_ms + wait_ms;
    refusal.limit = verdict->limit;
    refusal.remaining = verdict->remaining;
    refusal.reset_ms = refusal.until_ms;
    refusal.known_until_ms = now_ms + kRefusalMs;

    refusals_of(node)->add(s->hash, now_ms, refusal);

    return 1;
}

/* Sends what a node has admitted, now or when it may. */
static void send_synced(sim_t *s, node_t *node, double us) {
    if (us >= node->due_us) {
        call(s, node, us);
    } else if (!node->is_waiting) {
        node->is_waiting = 1;
        push(&s->timers, node->due_us, (uint32_t)(node - s->nodes));
    }
}

/* What Redis had no room for is sent again, and nothing is admitted before it has. */
static void reply_synced(sim_t *s, node_t *node, double us) {
    node->refused = node->needed - node->answer.granted;
    node->waiting += node->refused;
    node->needed = 0;
    node->told = node->told_next;

    if (node->waiting != 0) { send_synced(s, node, us); }
}

static void time_out(sim_t *s, event_t event) {
    node_t *node = &s->nodes[event.node];

    node->is_waiting = 0;

    if (node->waiting != 0 && node->needed == 0) { send_synced(s, node, event.at_us); }
}

/* A node decides by what it was told, less what it has admitted since. */
static void arrive_synced(sim_t *s, node_t *node, double us) {
    Verdict verdict = pure::describe(s->policy, node->told, ms_of(us), s->config.limit, 1);

    if (node->refused == 0 && verdict.remaining > node->waiting + node->needed) {
        admit(s, us, 1);
        result_at(s, us)->spent++;
        node->waiting++;
    } else {
        result_at(s, us)->refused++;

        if (us < node->refresh_us) { return; }
    }

    if (node->needed == 0 && !node->is_waiting) { send_synced(s, node, us); }
}

/* ngx_http_limit_sliding_answer(). */
static void reply(sim_t *s, event_t event) {
    int refused = 0;
    node_t *node = &s->nodes[event.node];
    uint32_t granted = node->answer.granted;
    uint32_t told = granted;
    uint64_t now_ms = ms_of(event.at_us + node->offset_us);
    Verdict verdict;

    if (s->mode == SIM_SYNCED) {
        reply_synced(s, node, event.at_us);
        return;
    }

    if (granted < node->asked || s->mode == SIM_LEASED) {
        redis_describe(&s->redis, &node->answer, &verdict);
    }

    if (granted < node->asked) { refused = remember(s, node, &verdict, now_ms); }

    if (s->mode == SIM_LEASED) {
        leases_of(node)->add(s->claim, node->answer.remote, verdict,
                             granted > node->needed ? granted - node->needed : 0, node->sent_ms,
                             now_ms);
    }

    while (told < node->needed && spend(s, node, event.at_us)) {
        told++;
    }

    while (node->waiting && spend(s, node, event.at_us)) {
        node->waiting--;
    }

    if (refused) {
        result_at(s, event.at_us)->refused += node->waiting;
        node->waiting = 0;
    }

    node->needed = 0;

    if (node->waiting) { call(s, node, event.at_us); }
}

/* ngx_http_limit_sliding_decide_remote(). */
static void arrive(sim_t *s, node_t *node, double us) {
    Refusal refusal;

    if (spend(s, node, us)) { return; }

    if (refusals_of(node)->find(s->hash, ms_of(us + node->offset_us), &refusal)) {
        result_at(s, us)->refused++;
        return;
    }

    node->waiting++;

    if (node->needed == 0) { call(s, node, us); }
}

static void arrive_strictly(sim_t *s, double us) {
    sim_result_t *result = result_at(s, us);

    result->calls++;

    if (redis_ask_one(&s->redis, ms_of(us))) {
        result->taken++;
        admit(s, us, 1);
    }
}

/* All that comes of calls until then. */
static void answer_until(sim_t *s, double us) {
    for (;;) {
        double decision_us = next_us(&s->decisions);
        double reply_us = next_us(&s->replies);
        double timer_us = next_us(&s->timers);

        if (fmin(fmin(decision_us, reply_us), timer_us) >= us) { return; }

        if (timer_us < fmin(decision_us, reply_us)) {
            time_out(s, pop(&s->timers));

        } else if (decision_us < reply_us) {
            decide(s, pop(&s->decisions));

        } else {
            reply(s, pop(&s->replies));
        }
    }
}

static void begin(sim_t *s, double rate, uint64_t *random) {
    double window_us = 1000.0 * s->config.window_ms;

    s->claim.policy = &s->policy;
    s->claim.hash = random_next(random);
    s->claim.limit = s->config.limit;
    s->claim.cost = 1;
    s->hash = limit_sliding::ask_hash(&s->claim, 1);

    s->busy_us = 0;
    s->from_us = (START + 1) * window_us;
    s->to_us = (START + 2) * window_us;

    memset(s->results, 0, sizeof(s->results));
    memset(s->nodes, 0, s->config.nodes * sizeof(node_t));

    for (uint32_t i = 0; s->mode != SIM_STRICT && i < s->config.nodes; i++) {
        s->nodes[i].offset_us = i * 1e6 + i * 7919 % 1000;
        checked(Leases::init(s->nodes[i].leases, LEASES_BYTES));
        checked(Refusals::init(s->nodes[i].refusals, REFUSALS_BYTES));
    }

    redis_begin(&s->redis, &s->policy, s->config.limit, s->config.cold ? 0 : rate, START,
                s->config.window_ms - s->config.warm_ms);
}

/* 0 < .. <= 1 */
static double uniform(uint64_t *random) {
    return (double)((random_next(random) >> 11) + 1) / 9007199254740992.0;
}

void sim_run(sim_t *s, double rate, uint64_t seed, sim_result_t *result) {
    double us, mean_us = 1e6 / rate;

    begin(s, rate, &seed);

    us = s->from_us - (s->config.cold ? 0 : 1000.0 * s->config.warm_ms);

    while ((us -= mean_us * log(uniform(&seed))) < s->to_us) {
        uint64_t node = (random_next(&seed) >> 32) * s->config.nodes >> 32;

        answer_until(s, us);

        result_at(s, us)->requests++;

        if (s->mode == SIM_STRICT) {
            arrive_strictly(s, us);

        } else if (s->mode == SIM_SYNCED) {
            arrive_synced(s, &s->nodes[node], us);

        } else {
            arrive(s, &s->nodes[node], us);
        }
    }

    answer_until(s, INFINITY);

    for (size_t i = 0; i < sizeof(sim_result_t) / sizeof(uint64_t); i++) {
        ((uint64_t *)result)[i] += ((uint64_t *)&s->results[1])[i];
    }
}
