/* Copyright (C) the limit_sliding authors */

#include "http/conf/limit_set.hpp"

#include <algorithm>

#include "http/conf/policy_header.hpp"
#include "http/values/rates_and_costs.hpp"
#include "ngx/memory.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

/* Prints `digits` and `policy` of the static limit. */
bool init_policy(ngx_pool_t *pool, Limit &limit) {
    auto *p = alloc_bytes(pool, limit.zone->quoted.len + kMember + NGX_INT64_LEN);
    if (p == nullptr) { return false; }

    p = append_number(p, limit.limit, &limit.digits);
    if (limit.zone->policy.calendar != Calendar::kNone) { return true; }

    const auto *end = print_policy(p, limit.zone, limit.limit, limit.zone->policy.window_ms);
    limit.policy = {static_cast<size_t>(end - p), p};
    return true;
}

/* Checks the static rate of a limit.  A rate with another window than the zone's is evaluated for
 * each request like a variable, because a key has a separate state for each window. */
bool check_rate(ngx_conf_t *cf, Limit &limit) {
    const auto &policy = limit.zone->policy;
    Rate rate;
    Window window = policy.window();
    (void)rate.parse(view(limit.rate_text), &window);
    if (window.calendar != Calendar::kNone && policy.algorithm != Algorithm::kFixed) {
        return invalid_at(cf, limit.where, "\"%V\" belongs to \"algorithm=fixed\" only in %s:%ui",
                          &limit.rate_word);
    }

    if (!set_limit(cf, limit.rate_word, rate, window.ms, limit.limit_max, limit.limit,
                   limit.where)) {
        return false;
    }

    return window == policy.window() || create_expression(cf, limit.rate_text, limit.rates[0]);
}

/* Checks that the parameters of a limit belong to its zone: one with "inflight=", or with a
 * rate. */
bool fits_zone(ngx_conf_t *cf, const Limit &limit) {
    const bool is_in_flight = limit.zone->policy.is_in_flight();
    if (limit.rate_word.len != 0
        && starts_with(view(limit.rate_word), "inflight=") != is_in_flight) {
        return invalid_at(cf, limit.where, "\"%V\" cannot be with zone \"%V\" of \"%s=\" in %s:%ui",
                          &limit.rate_word, &limit.zone->name, is_in_flight ? "inflight" : "rate");
    }

    return !is_in_flight || !limit.settles
           || invalid_at(cf, limit.where,
                         "\"%s=\" cannot be with zone \"%V\" of \"inflight=\" in %s:%ui",
                         limit.settle != nullptr ? "settle" : "count_status", &limit.zone->name);
}

bool init_limit(ngx_conf_t *cf, Limit &limit) {
    auto *zone = limit.zone;
    if (!fits_zone(cf, limit)) { return false; }

    limit.limit_max = zone->limit_max();

    const bool is_static = limit.rate_text.len != 0 && limit.rates[0] == nullptr;
    if (is_static && !check_rate(cf, limit)) { return false; }

    if (!is_static || limit.rates[0] != nullptr) {
        limit.limit = zone->limit;
        limit.rates[limit.rates[0] != nullptr ? 1 : 0] = zone->rate;
    }

    if (!zone->is_remote()) { limit.cost = std::min(limit.cost, kCostMax); }

    zone->policy.held = std::max(zone->policy.held, limit.limit);

    const bool is_variable = limit.rates[0] != nullptr;
    zone->variable |= is_variable;
    zone->remote.settles |= limit.settles;
    const bool is_evaluated
        = is_variable || limit.cost_value != nullptr || zone->rejected.are_banned();
    limit.adapts = is_evaluated ? Limit::kValues : 0;
    return init_policy(cf->pool, limit);
}

/* Returns the Redis that decides the limit, or nullptr if this node does.  Units in flight are held
 * before other limits are decided. */
const Redis *decides(const Limit &limit) {
    const auto &zone = *limit.zone;
    return zone.remote.sync_ms == 0 && !zone.policy.is_in_flight() ? zone.remote.redis : nullptr;
}

/* Moves the limits with decides() == redis to the front, in order.  Returns the next limit. */
Limit *gather(Limit *first, Limit *end, const Redis *redis) {
    for (auto *limit = first; limit != end; limit++) {
        if (decides(*limit) == redis) {
            std::rotate(first, limit, limit + 1);
            first++;
        }
    }

    return first;
}

/* Moves the limits of this node to the front, so that requests they reject do not go to Redis.
 * Puts the limits of one Redis side by side, to ask for them together. */
bool sort_limits(ngx_conf_t *cf, Group &group) {
    auto *const first = gather(group.begin(), group.end(), nullptr);
    for (const auto *limit = group.begin(); limit != first; limit++) {
        if (!limit->zone->is_remote()) { continue; }

        group.is_remote = true;
        if (limit->zone->policy.is_in_flight()) {
            group.is_held = true;
            continue;
        }

        group.is_synced = true;

        /* Units that were reported to this Redis are refunded if another Redis rejects. */
        limit->zone->remote.redis->settles |= first != group.end();
    }

    group.is_remote |= first != group.end();

    if (group.end() - first > kClaimsMax) {
        return invalid_at(cf, first->where, "more than %d limits of redis at one place in %s:%ui",
                          kClaimsMax);
    }

    for (auto *limit = first; limit != group.end();) {
        auto &redis = *limit->zone->remote.redis;
        auto *next = gather(limit, group.end(), &redis);
        redis.gives_back |= (limit != first || next != group.end());
        limit = next;
    }

    return true;
}

/* Prepends a group with the limits of a stage, if there are any: if `watched` is set, limits in
 * dry run, else enforced limits.  `all_watched`: all limits are in dry run. */
bool add_group(ngx_conf_t *cf, LimitSet &set, bool all_watched, Stage stage, bool watched) {
    auto *&next = set.groups[all_watched][stage];
    auto *group = create<Group>(cf->pool);
    auto *limits = alloc<Limit>(cf->pool, set.limits.size());
    if (group == nullptr || limits == nullptr) { return false; }

    group->limits = limits;
    for (auto &limit : set.limits) {
        if (limit.after_auth == (stage == kAfterAuth)
            && (all_watched || limit.dry_run) == watched) {
            auto &own = group->limits[group->nlimits++];
            own = limit;
            own.dry_run = watched;
            group->leaky |= own.zone->policy.may_delay();
        }
    }

    if (!sort_limits(cf, *group)) { return false; }

    if (group->nlimits == 0) { return true; }

    group->single = group->nlimits == 1 && next == nullptr && !watched && !group->is_remote;
    group->dry_run = watched;
    group->next = next;
    group->nclaims = group->nlimits + (next != nullptr ? next->nclaims : 0);
    next = group;
    return true;
}

bool init_groups(ngx_conf_t *cf, LimitSet &set) {
    for (bool all_watched : {false, true}) {
        for (Stage stage : {kBeforeAuth, kAfterAuth}) {
            for (bool watched : {true, false}) {
                if (!add_group(cf, set, all_watched, stage, watched)) { return false; }
            }
        }
    }

    return true;
}

/* A Limit::consume that always rejects, so that charge() settles with the key's debt. */
void reject(Claim *claim, uint64_t) { claim->outcome = Outcome::kRejected; }

} // namespace

void prepare_claim(Limit &limit) {
    auto &zone = *limit.zone;

    limit.claim = {};
    limit.claim.zone = zone.memory.table;
    limit.claim.policy = &zone.policy;
    limit.claim.limit = limit.limit;
    limit.claim.cost = limit.cost;
    limit.claim.purpose = Purpose::kConsume;
    limit.claim.directive = &limit;
    limit.claim.counts = &zone.worker.counters->slots;
    limit.claim.debts = zone.may_owe ? zone.memory.aside.debts : nullptr;
    if (limit.claim.debts != nullptr) { limit.adapts |= Limit::kDebts; }
    limit.claim.records = zone.policy.counts_rejected;
    if (zone.policy.is_in_flight()) { limit.adapts |= Limit::kHolds; }

    if (limit.settles && limit.cost == 0) { limit.claim.reserve_nothing(); }

    if (limit.limit == 0) { return; }

    /* A cost variable may change the purpose. */
    const bool is_plain = !limit.settles || limit.cost_value == nullptr;
    auto *const consume = consume_by_history(zone.policy, limit.limit);
    auto *const decide = limit.claim.purpose == Purpose::kConsume
                             ? consume
                             : look_by_history(zone.policy, limit.limit);
    limit.consume = limit.claim.pace() == limit.limit ? consume : reject;
    limit.decide = is_plain ? decide : nullptr;
}

bool init_sets(ngx_conf_t *cf, const Array<LimitSet *> &sets) {
    for (auto *set : sets) {
        for (auto &limit : set->limits) {
            if (!init_limit(cf, limit)) { return false; }
        }

        if (!init_groups(cf, *set)) { return false; }
    }

    return true;
}

void prepare_claims(const Array<LimitSet *> &sets) {
    for (auto *set : sets) {
        for (auto &groups : set->groups) {
            for (auto *group : groups) {
                for (; group != nullptr; group = group->next) {
                    std::for_each(group->begin(), group->end(), prepare_claim);
                }
            }
        }
    }
}

} // namespace limit_sliding
